// PendingSteps: gradients that came for a step of a shard and wait for the others of the same step (synchronous
// training).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

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
  // Dense: {gradient}; of rows: {indices, rows}. The whole step's when this was the last share that it waited for: the
  // sum, or all indices and rows one after the other; else nothing. Steps are told apart by `ordinal`, the place of the
  // update among those of its piece of work, and follow each other. A share that is there is replaced.
  std::optional<std::vector<torch::Tensor>> add(int64_t ordinal, const Share& share, std::vector<torch::Tensor> part);

  // As one list of tensors, and from it. InvalidArgument: it is none.
  std::vector<torch::Tensor> state() const;
  void load_state(const std::vector<torch::Tensor>& state);

 private:
  struct Step {
    int64_t count = 0;
    // Of dense gradients those that can be are added up at once, so that at best one is kept.
    int64_t summed = 0;
    std::map<int64_t, std::vector<torch::Tensor>> parts;  // by share; the sum at summed - 1
  };

  std::map<int64_t, Step> steps_;  // by ordinal
};

}  // namespace cohort
