// Actions for a Controller. They decide by the logs, which are the same on all workers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "cohort/train/controller.h"

namespace cohort {

// Tells which of two values of a metric is better.
enum class Comparison { kHigher, kLower };

struct BestCheckpointOptions {
  std::string metric;                           // the name of the evaluation's log to watch
  Comparison comparison = Comparison::kHigher;  // tells which of two values of the metric is better
  // Gets info.json, with the best evaluation's logs and its "best_ckpt_global_step", and what `save` writes.
  std::filesystem::path directory;
  // Writes the model as it is, into a file or a folder of that name; called on all workers.
  std::function<void(const std::filesystem::path&)> save;
};
// Writes best_ckpt-<step> after an evaluation that is better than all before it, those of earlier runs included, and
// removes the one before. A NaN is not better. NotFound: the evaluation has no such metric.
Action BestCheckpoint(const BestCheckpointOptions& options);

struct RecoveryOptions {
  double loss_upper_bound = 1e6;  // a larger loss counts as a failure
  int64_t begin_steps = 0;        // the step from which the bound holds; a NaN is a failure at any step
  // The number of times that the latest checkpoint is restored; 0: the first failure is an error; negative: nothing is
  // checked.
  int64_t max_trials = 0;
};
// Restores the latest checkpoint after an inner loop whose loss is NaN or too large. The training goes on from there
// with the data that comes next. FailedPrecondition: too many trials, or there is no checkpoint.
Action Recovery(const RecoveryOptions& options = {});

// Compares the parameters of all replicas (compare_copies) after the first inner loop and then after every inner loop
// in which the global step has passed a multiple of `interval`. Collective. InvalidArgument: the interval is less than
// 1. DataLoss: a replica's differ; the message names it.
Action CompareReplicas(const Model& model, int64_t interval);

// Returns an action that calls `action`, whose listener it has, where the condition holds.
Action ConditionalAction(std::function<bool(const ActionInfo&)> condition, Action action);

}  // namespace cohort
