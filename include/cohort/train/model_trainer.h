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

// Exponential moving averages of the weights over the steps of the training: average = decay * average + (1 - decay) *
// weight. Evaluations use them in place of the weights; checkpoints have them as the group "ema". They begin at zero,
// as Model Garden's do: without dynamic_decay set a start_step, or the first ones are too small.
struct MovingAverageOptions {
  double average_decay = 0.0;          // the decay; 0: there are no averages
  int64_t start_step = 0;              // the step before which the averages are the weights
  bool dynamic_decay = true;           // min(average_decay, (1 + step) / (10 + step)), step from start_step on
  bool trainable_weights_only = true;  // leave batch-norm statistics as they are
};

struct ModelTrainerOptions {
  std::optional<Dataset> train = std::nullopt;                  // batched, and long enough: repeat() it
  std::optional<Dataset> validation = std::nullopt;             // batched
  InputOptions input = {};                                      // the division and preparation of the data
  std::optional<InputOptions> validation_input = std::nullopt;  // unset: as input
  MovingAverageOptions ema = {};                                // averages of the weights, which evaluations use
  // The global steps, ascending, after which the training changes, for example thaws a part of the model. The model is
  // given compiled for stage 0. begin_stage(i) compiles it anew before the first step after stages[i - 1], and when a
  // checkpoint of another stage is restored; a checkpoint of that very step belongs to the stage that ends there.
  std::vector<int64_t> stages = {};
  std::function<void(std::size_t stage)> begin_stage = {};  // see stages
  // Metrics and the shown progress are those of stretches that end at multiples of this number of steps, each of one
  // or several inner loops. 0: those of each train().
  int64_t report_steps = 0;
  int64_t steps_per_epoch = 0;       // the length of an epoch, for progress and metadata of saved weights; 0: not known
  int64_t train_steps = 0;           // the length of the training, for the progress; 0: not known
  Verbose verbose = Verbose::kAuto;  // the form of the progress
  std::ostream* output = nullptr;    // the stream for the progress; null: standard output
};

// Trains and evaluates a Model. The logs have "loss", the metrics and, after training, "learning_rate". It saves what
// TrainingRun::save() does, so that a restored training goes on bit for bit; with another number of workers or replicas
// the input begins anew.
// Not thread-safe.
class ModelTrainer final : public Trainer, public Evaluator {
 public:
  // Takes a compiled model. FailedPrecondition: it is not compiled. InvalidArgument: there is no data; the stages are
  // out of order, or without begin_stage. Unimplemented: averages or stages under parameter servers.
  ModelTrainer(Model model, ModelTrainerOptions options);
  ModelTrainer(const ModelTrainer&) = delete;
  ModelTrainer& operator=(const ModelTrainer&) = delete;
  ~ModelTrainer() override;

  int64_t global_step() const override;
  // InvalidArgument: the data ran out.
  Logs train(int64_t steps) override;
  CheckpointData save() override;
  bool saves_shards() const override { return true; }
  CheckpointData save_shards() override;
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
