// The place of a training: everything that it needs to go on from there, as the data of a checkpoint of all workers.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cohort/checkpoint.h"
#include "train/model/model_state.h"

namespace cohort {

// The moment at which a training ends that a callback has stopped. One of several workers tells the others with the
// batch of the step after next, so all make one more step, and an epoch that is complete by then ends as any other.
enum class Ending { kNone, kAfterNextStep, kBeforeNextStep, kNow };

struct TrainingPosition {
  int64_t epoch = 0;  // the epoch, or the pass over the data, to go on in, from 0
  int64_t batch = 0;  // the number of its steps that are done
  std::string input;  // this worker's position in the input; empty: the epoch begins anew
  Ending ending = Ending::kNone;
};

// Calls evaluate(). If that returns nothing because it was cut short, the random states, metrics and buffers of this
// process are set back to what they were before. Without may_be_cut nothing is kept for that.
std::optional<Logs> evaluate_or_undo(ModelState& state, bool may_be_cut,
                                     const std::function<std::optional<Logs>()>& evaluate);

// Returns the data of a checkpoint on the chief, and nothing on the others; sharded: what this worker has, with the
// values of the chief's. Collective.
CheckpointData save_training(ModelState& state, const TrainingPosition& position, bool sharded = false);

// Sets everything but the input (TrainingInput::restore) and returns where to go on, with the position in the input if
// there are as many workers and replicas as before. Only the chief's `data` counts, but for its shards. Collective.
TrainingPosition restore_training(ModelState& state, const CheckpointData& data);

}  // namespace cohort
