// Callbacks: what a training does besides its steps, at the beginnings and ends of its parts. more_callbacks.h has
// those that save, watch and steer it.
//
//   model.fit(train, {.epochs = 50, .validation_data = test,
//                     .callbacks = {LambdaCallback({.on_epoch_end = [](const RunInfo& run, Logs& logs) { ... }})}});
//
// All are called on the thread that called fit(), in cross-replica context, in the order of the list. At the ends of
// batches, epochs and the training those that save the training come last (Callback::turn).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/weights.h"

namespace cohort {

class Model;
class TrainingRun;

// Named numbers, in order: the loss, the metrics, then with "val_" those of the validation.
class Logs {
 public:
  // A name and its number.
  using Item = std::pair<std::string, double>;

  Logs() = default;
  // Logs with these names and numbers, in this order.
  Logs(std::initializer_list<Item> items) : items_(items) {}

  // Replaces the number of that name or appends it.
  void set(std::string_view name, double value);
  // Returns the number of that name, or nothing if there is none.
  std::optional<double> find(std::string_view name) const;
  // Returns whether there is a number of that name.
  bool contains(std::string_view name) const { return find(name).has_value(); }
  // Returns the number of that name. NotFound lists the names that there are.
  double operator[](std::string_view name) const;

  // Returns how many numbers there are.
  std::size_t size() const { return items_.size(); }
  // Returns whether there are none.
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<Item> items_;
};

// The result of fit(): for each name the numbers of the epochs that had it.
class History {
 public:
  // Returns the numbers of the epochs, from 0.
  const std::vector<int64_t>& epochs() const { return epochs_; }
  // Returns the numbers of that name, epoch by epoch. NotFound lists the names that there are.
  const std::vector<double>& operator[](std::string_view name) const;
  // Returns whether any epoch had a number of that name.
  bool contains(std::string_view name) const;
  // Returns the names in the order in which they first appeared.
  std::vector<std::string> names() const;

  // Adds the logs of an epoch.
  void append(int64_t epoch, const Logs& logs);

 private:
  std::vector<int64_t> epochs_;
  std::vector<std::pair<std::string, std::vector<double>>> series_;
};

// The place where a training or an evaluation is.
struct RunInfo {
  Model& model;                  // the model that is trained or evaluated
  int64_t epochs = 1;            // the epochs given to fit(); in evaluate() those that were trained so far
  int64_t steps_per_epoch = -1;  // -1: not known
  int64_t epoch = 0;             // the current one, from 0
  int64_t batch = 0;             // within the epoch, from 0
  int64_t steps = 1;  // in on_batch_end: the steps since on_batch_begin (CompileOptions::steps_per_execution)
  // Updates made since the model was compiled; before any, those of the loaded weights. With a loss scale on a device
  // that is not the host the last step counts until it is known to have been left out, so that nobody waits for it.
  int64_t step = 0;
  double examples_per_second = 0.0;  // the speed of the epoch or the evaluation that ended
  TrainingRun* training = nullptr;   // the whole state of fit(), to save and resume; null in evaluate()

  // Returns whether the batch is the last one of the epoch; in on_epoch_end, whether the epoch was not cut short.
  bool ends_epoch() const { return steps_per_epoch > 0 && batch + 1 >= steps_per_epoch; }
};

// The means of the epoch so far, computed when they are read. Reading waits for the devices.
class BatchLogs {
 public:
  // Makes logs that these functions compute when they are asked.
  BatchLogs(std::function<Logs()> all, std::function<double()> loss) : all_(std::move(all)), loss_(std::move(loss)) {}
  // Returns the loss and all metrics.
  Logs read() const { return all_(); }
  // Returns the loss alone, which is cheaper.
  double loss() const { return loss_(); }

 private:
  std::function<Logs()> all_;
  std::function<double()> loss_;
};

// The state by which a listener decides; a part of every checkpoint of its training.
struct CallbackState {
  std::map<std::string, std::string> values = {};  // texts by key; they stand in the checkpoint's manifest
  NamedTensors tensors = {};                       // tensors by name
};

// Somebody who is told what happens in a training and may have a state: a Callback, or the state of an Action.
class Listener {
 public:
  virtual ~Listener() = default;

  // Returns the name of its state in checkpoints, such as "early_stopping"; empty if it has none. The order in the list
  // distinguishes several listeners of one name.
  virtual std::string state_name() const { return {}; }
  // Returns what is saved under state_name(); called only if that is not empty.
  virtual CallbackState state() const { return {}; }
  // Called in a training that is resumed from a checkpoint with this listener's state; a callback's after all
  // on_train_begin().
  virtual void load_state(const CallbackState& /*state*/) {}
};

// Derive from it and override the functions that you need; the others do nothing. An exception ends the training.
class Callback : public Listener {
 public:
  // Called once before the first epoch; here a training can be resumed (RunInfo::training).
  virtual void on_train_begin(const RunInfo& /*run*/) {}
  // Called once after the last epoch, with the logs of that epoch.
  virtual void on_train_end(const RunInfo& /*run*/, const Logs& /*logs*/) {}
  // Called before the first batch of an epoch.
  virtual void on_epoch_begin(const RunInfo& /*run*/) {}
  // Called after the last batch of an epoch and its validation. What it adds to the logs is seen by the callbacks after
  // this one, the progress bar and the History.
  virtual void on_epoch_end(const RunInfo& /*run*/, Logs& /*logs*/) {}
  // Called before each batch, or the first of several (CompileOptions::steps_per_execution).
  virtual void on_batch_begin(const RunInfo& /*run*/) {}
  // Called after each batch, or the last of several; on GPUs its step may still be running.
  virtual void on_batch_end(const RunInfo& /*run*/, const BatchLogs& /*logs*/) {}
  // Called when training ends here because of a preemption, on all workers after the same step.
  virtual void on_preemption(const RunInfo& /*run*/) {}
  // Called before evaluate(), and before the validation in fit().
  virtual void on_test_begin(const RunInfo& /*run*/) {}
  // Called after an evaluation with its logs, whose names have no "val_" yet.
  virtual void on_test_end(const RunInfo& /*run*/, const Logs& /*logs*/) {}
  // Called before each batch of an evaluation, whose number is RunInfo::batch.
  virtual void on_test_batch_begin(const RunInfo& /*run*/) {}
  // Called after it.
  virtual void on_test_batch_end(const RunInfo& /*run*/, const BatchLogs& /*logs*/) {}
  // Called before the first batch of predict().
  virtual void on_predict_begin(const RunInfo& /*run*/) {}
  // Called after the last one.
  virtual void on_predict_end(const RunInfo& /*run*/) {}
  // Called before each of its batches.
  virtual void on_predict_batch_begin(const RunInfo& /*run*/) {}
  // Called after it.
  virtual void on_predict_batch_end(const RunInfo& /*run*/) {}

  // Returns when it is called among the others at the ends of batches, epochs and the training, and in a preemption:
  // callbacks of a higher turn are called later. Those that save the training have one, wherever they stand in the
  // list, so that they save what the others have seen.
  virtual int turn() const { return 0; }
};

// The type by which callbacks are passed around; std::make_shared<MyCallback>() makes one of a class of your own.
using CallbackPtr = std::shared_ptr<Callback>;

// The functions of a Callback; those that are not set do nothing.
struct CallbackFunctions {
  std::function<void(const RunInfo&)> on_train_begin = {};                       // as Callback::on_train_begin
  std::function<void(const RunInfo&, const Logs&)> on_train_end = {};            // as Callback::on_train_end
  std::function<void(const RunInfo&)> on_epoch_begin = {};                       // as Callback::on_epoch_begin
  std::function<void(const RunInfo&, Logs&)> on_epoch_end = {};                  // as Callback::on_epoch_end
  std::function<void(const RunInfo&)> on_batch_begin = {};                       // as Callback::on_batch_begin
  std::function<void(const RunInfo&, const BatchLogs&)> on_batch_end = {};       // as Callback::on_batch_end
  std::function<void(const RunInfo&)> on_preemption = {};                        // as Callback::on_preemption
  std::function<void(const RunInfo&)> on_test_begin = {};                        // as Callback::on_test_begin
  std::function<void(const RunInfo&, const Logs&)> on_test_end = {};             // as Callback::on_test_end
  std::function<void(const RunInfo&)> on_test_batch_begin = {};                  // as Callback::on_test_batch_begin
  std::function<void(const RunInfo&, const BatchLogs&)> on_test_batch_end = {};  // as Callback::on_test_batch_end
  std::function<void(const RunInfo&)> on_predict_begin = {};                     // as Callback::on_predict_begin
  std::function<void(const RunInfo&)> on_predict_end = {};                       // as Callback::on_predict_end
  std::function<void(const RunInfo&)> on_predict_batch_begin = {};               // as Callback::on_predict_batch_begin
  std::function<void(const RunInfo&)> on_predict_batch_end = {};                 // as Callback::on_predict_batch_end
};
// Makes a callback of functions.
CallbackPtr LambdaCallback(CallbackFunctions functions);

// Tells which numbers of a monitored log are better. kAuto asks the metric of that name; a loss is better when it is
// smaller. InvalidArgument: the metric is a user's and has no direction.
enum class MonitorMode { kAuto, kMin, kMax };

// One line of a metrics file: {"step": 938, "epoch": 2, "mode": "train", "loss": 0.1, ..., "examples_per_second": 9e4}.
struct MetricsRecord {
  int64_t step = 0;                  // updates made
  int64_t epoch = 0;                 // epochs done
  std::string mode;                  // "train" or "eval"
  Logs metrics;                      // the loss and the metrics
  double examples_per_second = 0.0;  // speed of the epoch or the evaluation
};
// Appends the line and flushes it. A number that is not finite is written as null. Unavailable: the file cannot be
// written.
void append_metrics(const std::filesystem::path& file, const MetricsRecord& record);

}  // namespace cohort
