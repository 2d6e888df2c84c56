// Messages between the processes of a pipeline: values whose sizes the receiver does not know, so that these travel
// with them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "cohort/communicator.h"

namespace cohort {

struct StageMessage {
  // Says what it is, for which microbatch and chunk; checked by the receiver.
  enum class Kind : int64_t { kOutput, kGradient, kResult };
  Kind kind = Kind::kOutput;
  int64_t microbatch = 0;
  int64_t chunk = 0;  // the chunk that the values are for
  // May be undefined. Whether they require gradients, and whether they lie on a card, travels with them.
  std::vector<torch::Tensor> values = {};
};

// Sends a message, values on a card through the host's memory. Returns the parts that are under way, of which the
// tensors stay as they are.
std::vector<Work<>> send_message(Communicator& line, int to, const StageMessage& message);
// Receives the next one that a rank sends; its values are new tensors on the CPU, or on `device` where the sender has
// them on a card. DataLoss: it is none.
StageMessage receive_message(Communicator& line, int from, torch::Device device);
// Gives all ranks the message of one of them, where receive_message() has its values; a collective.
StageMessage broadcast_message(Communicator& line, int root, torch::Device device, StageMessage message);

}  // namespace cohort
