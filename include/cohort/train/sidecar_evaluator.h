// SidecarEvaluator: a process beside the training that evaluates its checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cohort/checkpoint.h"
#include "cohort/train/model.h"

namespace cohort {

struct SidecarEvaluatorOptions {
  std::filesystem::path checkpoint_dir;                   // the folder that a training of fit() is saved in
  CheckpointFollowerOptions follow = {.name = "backup"};  // the way of waiting for checkpoints
  int64_t max_evaluations = 0;                            // evaluations to make; 0: until the writer has finished
  EvaluateOptions evaluate = {};                          // the options of each evaluation
};

// Evaluates the checkpoints of a training (Keras' SidecarEvaluator). If checkpoints are written faster than they are
// evaluated, some are left out, but not the last one. The training has to keep the last one (delete_checkpoint =
// false).
class SidecarEvaluator {
 public:
  // InvalidArgument: there is no folder, or a number is negative.
  SidecarEvaluator(Model model, Dataset data, SidecarEvaluatorOptions options);

  // Returns the number of evaluations when the training has ended. DeadlineExceeded: no checkpoint came in time.
  // NotFound, InvalidArgument: a checkpoint does not fit the model.
  int64_t start();

 private:
  Model model_;
  Dataset data_;
  SidecarEvaluatorOptions options_;
};

}  // namespace cohort
