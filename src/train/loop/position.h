// Where a training is, with all that it needs to go on from there, as the data of a checkpoint over all workers, and
// back.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cohort/checkpoint.h"
#include "train/model/model_state.h"

namespace cohort {

// What becomes of a training that a callback has stopped. One of several workers tells the others with the batch of the
// step after next, so they make one more step, and an epoch that is complete by then ends as any other.
enum class Ending { kNone, kAfterNextStep, kBeforeNextStep, kNow };

struct TrainingPosition {
  int64_t epoch = 0;  // the pass over the data, or the epoch, to go on in, from 0
  int64_t batch = 0;  // steps done of it
  std::string input;  // this worker's position in the input; empty: the beginning of the epoch's
  Ending ending = Ending::kNone;
};

// Calls evaluate(), which returns nothing if it was cut short. Then this process' random states, metrics and buffers
// are set back to what they were. Without may_be_cut nothing is kept for that.
std::optional<Logs> evaluate_or_undo(ModelState& state, bool may_be_cut,
                                     const std::function<std::optional<Logs>()>& evaluate);

// Returns the data on the chief, and nothing on the others. Collective of all workers.
CheckpointData save_training(ModelState& state, const TrainingPosition& position);

// Sets everything but the input (TrainingInput::restore) and returns where to go on, with the input's position if the
// workers and replicas are as many as they were. `data` is the chief's. Collective.
TrainingPosition restore_training(ModelState& state, const CheckpointData& data);

}  // namespace cohort
