// ModelTrainer: trains and evaluates a compiled Model for a Controller.
//
//   auto trainer = std::make_shared<ModelTrainer>(model, ModelTrainerOptions{.train = data.repeat(), .validation =
//   test});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/train/controller.h"
#include "cohort/train/model.h"

namespace cohort {

// Averages of the weights over the steps of the training, which are evaluated, and saved with every checkpoint (its
// group "ema"), in place of the weights themselves: average = decay * average + (1 - decay) * weight.
// Exponential moving averages of the weights, which evaluations use in their place.
struct MovingAverageOptions {
  double average_decay = 0.0;          // 0: none
  int64_t start_step = 0;              // until then the averages are the weights
  bool dynamic_decay = true;           // min(average_decay, (1 + step) / (10 + step)), step from start_step on
  bool trainable_weights_only = true;  // without batch-norm statistics
};

struct ModelTrainerOptions {
  std::optional<Dataset> train = std::nullopt;                  // batched, and long enough: repeat() it
  std::optional<Dataset> validation = std::nullopt;             // batched
  InputOptions input = {};                                      // how the data is divided and prepared
  std::optional<InputOptions> validation_input = std::nullopt;  // unset: as input
  MovingAverageOptions ema = {};                                // averages of the weights, which evaluations use
  // The global steps, ascending, after which the training changes: a part of the model thaws, say. The model is given
  // compiled for stage 0. begin_stage(i) compiles it anew for the steps after stages[i - 1], before the first of them,
  // and where a checkpoint of another stage is restored: one of the very step is of the stage that ends there.
  std::vector<int64_t> stages = {};
  std::function<void(std::size_t stage)> begin_stage = {};  // see stages
  // Metrics and the progress that is shown are of stretches that end at multiples of so many steps, with as many inner
  // loops as there are in each. 0: of each train().
  int64_t report_steps = 0;
  int64_t steps_per_epoch = 0;       // for the progress and the epoch in the metadata of saved weights; 0: not known
  int64_t train_steps = 0;           // for the progress; 0: not known
  Verbose verbose = Verbose::kAuto;  // how the progress is shown
  std::ostream* output = nullptr;    // of the progress; null: standard output
};

// Its logs have "loss", the metrics and, of a training, "learning_rate". Saves what TrainingRun::save() does, so that a
// restored training goes on bit for bit; with another number of workers or replicas the input begins anew.
// Not thread-safe.
class ModelTrainer final : public Trainer, public Evaluator {
 public:
  // FailedPrecondition: not compiled. InvalidArgument: neither data; stages out of order, or without begin_stage.
  // Unimplemented: averages or stages under parameter servers.
  ModelTrainer(Model model, ModelTrainerOptions options);
  ModelTrainer(const ModelTrainer&) = delete;
  ModelTrainer& operator=(const ModelTrainer&) = delete;
  ~ModelTrainer() override;

  int64_t global_step() const override;
  // InvalidArgument: the data ran out.
  Logs train(int64_t steps) override;
  CheckpointData save() override;
  void restore(const CheckpointData& data, bool keep_input) override;
  void end_when(std::function<bool()> told) override;
  bool told_to_end() const override;

  Logs evaluate(int64_t steps) override;
  int64_t load(const std::filesystem::path& checkpoint) override;

  // Calls fn with the averages in the model in place of its weights; without averages, as it is.
  void with_averages(const std::function<void()>& fn);
  // Returns the speed of the last train() or evaluate().
  double examples_per_second() const;
  // Returns the model that is trained.
  Model& model();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
