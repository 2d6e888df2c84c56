// Messages between the processes of a pipeline: values whose sizes the receiver does not know, so that these travel
// with them.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <vector>

#include "cohort/communicator.h"

namespace cohort {

struct StageMessage {
  // Says what it is, for which microbatch and chunk; checked by the receiver.
  enum class Kind : int64_t { kOutput, kGradient, kResult };
  Kind kind = Kind::kOutput;
  int64_t microbatch = 0;
  int64_t chunk = 0;                       // the chunk that the values are for
  std::vector<torch::Tensor> values = {};  // may be undefined; whether they require gradients travels with them
};

// Sends a message. Returns the parts that are under way, of which the tensors stay as they are.
std::vector<Work<>> send_message(Communicator& line, int to, const StageMessage& message);
// Receives the next one that a rank sends; its values are new tensors on the CPU. DataLoss: it is none.
StageMessage receive_message(Communicator& line, int from);
// Gives all ranks the message of one of them; a collective.
StageMessage broadcast_message(Communicator& line, int root, StageMessage message);

}  // namespace cohort
