// PendingSteps: gradients that came for a step of a shard and wait for the others of the same step (synchronous
// training).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parameter_server/server/update_log.h"

namespace cohort {

// Of an update that is one of several which are to be applied together, in one step of the optimizer: the sum of their
// gradients, added up in the order of the shares. It waits for the others.
struct Share {
  int64_t index = 0;
  int64_t count = 1;
};

// Not thread-safe.
class PendingSteps {
 public:
  // A dense gradient, {gradient}, or one of rows, {indices, rows}.
  using Part = std::vector<torch::Tensor>;

  // Returns the whole step's gradient when this was the last share that it waited for: the sum, or all indices and rows
  // one after the other; else nothing. The shares of a step have consecutive closures and the same ordinal. Steps of
  // the same ordinal follow each other: a share of a later one takes the place of what was given up, and one of an
  // earlier step is left out. InvalidArgument: the shares of the step do not belong together; nothing is kept then.
  std::optional<Part> add(const UpdateId& id, const Share& share, Part part);

  // As one list of tensors, and from it, where `require_part` throws on gradients that do not fit. InvalidArgument: it
  // is none.
  std::vector<torch::Tensor> state() const;
  void load_state(const std::vector<torch::Tensor>& state, const std::function<void(const Part&)>& require_part);

 private:
  struct Step {
    int64_t first = 0;  // the closure of share 0
    int64_t count = 0;
    // Of dense gradients those that can be are added up at once, so that at best one is kept.
    int64_t summed = 0;
    std::map<int64_t, Part> parts;  // by share; the sum at summed - 1
  };

  std::map<int64_t, Step> steps_;  // by ordinal
};

}  // namespace cohort
