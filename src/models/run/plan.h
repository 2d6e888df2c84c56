// The plan of a run in plain numbers. Every field of the trainer and of the precision is read here, before anything
// begins, so that Config::require_read() can name those that were set without an effect.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "cohort/compute.h"
#include "cohort/models/experiment.h"
#include "cohort/train/actions.h"

namespace cohort {

// The modes of a run. The last one is another name of the one before.
inline constexpr std::array kRunModes = {"train",
                                         "eval",
                                         "train_and_eval",
                                         "train_and_post_eval",
                                         "continuous_eval",
                                         "continuous_train_and_eval",
                                         "train_and_validate"};
// Returns the names of the modes as a text.
std::string run_modes();

struct RunPlan {
  // Numbers of steps. An interval of 0 has become an epoch, or the whole training if the length of an epoch is not
  // known.
  int64_t train_steps = 0;
  int64_t steps_per_epoch = 0;  // 0: not known
  int64_t steps_per_loop = 0;
  int64_t summary_interval = 0;
  int64_t checkpoint_interval = 0;
  int64_t validation_interval = 0;
  int64_t validation_steps = 0;

  int64_t max_to_keep = 0;
  bool sharded_checkpoints = false;
  std::chrono::seconds continuous_eval_timeout{0};
  bool saves_when_preempted = false;
  int64_t compare_replicas_interval = 0;  // 0: never
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
    int64_t images = 0;  // training images that are written at the beginning
    bool histograms = false;
  } summaries;
};

// Makes the plan. InvalidArgument: `trains` is set, but the training has no length.
RunPlan plan_run(const TrainerConfig& trainer, const TaskData& data, bool trains);

// Returns the options with which the model is compiled for the steps from `begin` on.
CompileOptions plan_compile(const ExperimentConfig& experiment, const RunPlan& plan, int replicas, int64_t begin);

// Returns how the devices compute. InvalidArgument: a key for GPUs is set, but a replica of the current strategy is on
// something else, or a replica is on a device of XLA, which has no switches of LibTorch's.
ComputeOptions plan_compute(const RuntimeConfig& runtime);

// Fails with InvalidArgument if evaluations will not have the metric by which the best checkpoint is chosen.
void check_best(const RunPlan& plan, const CompileOptions& options);

}  // namespace cohort
