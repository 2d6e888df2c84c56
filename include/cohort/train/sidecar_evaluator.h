// SidecarEvaluator: a process beside the training that evaluates its checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cohort/checkpoint.h"
#include "cohort/train/model.h"

namespace cohort {

struct SidecarEvaluatorOptions {
  std::filesystem::path checkpoint_dir;  // of BackupAndRestore or a CheckpointManager, of fit()'s whole state
  CheckpointFollowerOptions follow = {.name = "backup"};  // how it waits for checkpoints
  int64_t max_evaluations = 0;                            // 0: until the writer has finished
  EvaluateOptions evaluate = {};                          // of each
};

// Keras' SidecarEvaluator. Of checkpoints that are written faster than they are evaluated some are left out, but not
// the last one. Keep the last one (delete_checkpoint = false), or there is nothing to evaluate at the end.
class SidecarEvaluator {
 public:
  // InvalidArgument: no folder, a negative number.
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
