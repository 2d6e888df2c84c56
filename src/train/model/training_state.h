// The state of a training as checkpoint data, over all workers, and back.
#pragma once

#include <string>

#include "cohort/checkpoint.h"
#include "train/model/model_state.h"

namespace cohort {

struct TrainingPosition {
  int64_t epoch = 0;     // to go on in, from 0
  int64_t batch = 0;     // of it
  std::string input;     // this worker's position in the epoch's input; empty: its beginning
  bool stopped = false;  // whether a callback has ended the training
};

// What this process has of its own: random states, metrics so far, buffers of the replicas, gradients added up since
// the last update, position of the input.
std::string save_own_state(ModelState& state, const std::string& input);
// Sets all but the input, and returns its position.
std::string restore_own_state(ModelState& state, const std::string& bytes);

// Collective of all workers; the chief gets the data, the others get nothing.
CheckpointData save_training(ModelState& state, const TrainingPosition& position);

// Collective; `data` is the chief's. Sets everything but the input, and returns where to go on: with the input's
// position where the workers and replicas are as many as they were.
TrainingPosition restore_training(ModelState& state, const CheckpointData& data);

}  // namespace cohort
