// What a run will do, in plain numbers: here every field of the trainer and of the precision is read, before anything
// begins, so that Config::require_read() can say which ones were set for nothing.
#pragma once

#include <filesystem>
#include <optional>

#include "cohort/models/experiment.h"
#include "cohort/train/actions.h"

namespace cohort {

struct RunPlan {
  // In steps. An interval of 0 has become an epoch, or the whole training where its length is not known.
  int64_t train_steps = 0;
  int64_t steps_per_epoch = 0;  // 0: not known
  int64_t steps_per_loop = 0;
  int64_t summary_interval = 0;
  int64_t checkpoint_interval = 0;
  int64_t validation_interval = 0;
  int64_t validation_steps = 0;

  int64_t max_to_keep = 0;
  std::chrono::seconds continuous_eval_timeout{0};
  bool saves_when_preempted = false;
  RecoveryOptions recovery;
  MovingAverageOptions averages;

  struct Best {
    std::string folder;
    std::string metric;
    Comparison comparison = Comparison::kHigher;
  };
  std::optional<Best> best;

  struct Summaries {
    std::string validation_folder;
    int64_t images = 0;  // at the beginning
    bool histograms = false;
  } summaries;
};

// InvalidArgument: the training has no length, and `trains`.
RunPlan plan_run(const TrainerConfig& trainer, const TaskData& data, bool trains);

// What the model is compiled with for the steps from `begin` on.
CompileOptions plan_compile(const ExperimentConfig& experiment, const RunPlan& plan, int replicas, int64_t begin);

// InvalidArgument: evaluations will not have the metric that the best checkpoint is chosen by.
void check_best(const RunPlan& plan, const std::vector<Metric>& metrics);

}  // namespace cohort
