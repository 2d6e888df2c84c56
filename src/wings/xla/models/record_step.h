// The training step of an experiment as a program, for devices that need not be here.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/models/experiment.h"

namespace cohort {

struct RecordedStep {
  std::string text;   // the program in StableHLO: forward, backward, the sums over the replicas, the update
  int num_cores = 1;  // the cores of a replica, among which the program is divided, as the task says
  int64_t global_batch = 0;
};

// Records a training step of an experiment on one of `num_replicas` replicas of XLA's devices, with its share of a
// batch of zeros; with more than one step a launch the text is a loop with room for so many, each with a batch and
// numbers of its own. Nothing runs, and no data are read; averages of the weights are no part of the program. A process
// can do this once, and uses no other device of XLA. InvalidArgument: the replicas cannot share the batch alike, or
// there are fewer steps than 1. Unimplemented: the step is not one program, as with a loss scale, or an operation has
// no lowering.
RecordedStep record_step(const ExperimentConfig& experiment, int num_replicas, int64_t steps = 1);

}  // namespace cohort
