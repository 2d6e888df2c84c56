// PendingSteps: the gradients that wait for the other gradients of the same step of a shard (synchronous training).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "wings/parameter_server/server/update_log.h"

namespace cohort {

// The place of an update among several that are applied together, in one step of the optimizer. Their gradients are
// added up in the order of the shares.
struct Share {
  int64_t index = 0;
  int64_t count = 1;
};

// The pending steps of one shard. Not thread-safe.
class PendingSteps {
 public:
  // A dense gradient, {gradient}, or a gradient of rows, {indices, rows}.
  using Part = std::vector<torch::Tensor>;

  // Adds a share. If it was the last one of its step, returns the gradient of the whole step: the sum, or all indices
  // and rows one after the other. Otherwise returns nothing. The shares of a step have consecutive closures and the
  // same ordinal. Steps of the same ordinal follow each other: a share of a later one takes the place of what was given
  // up, and one of an earlier step is left out. InvalidArgument: the shares of the step do not belong together; nothing
  // is kept then.
  std::optional<Part> add(const UpdateId& id, const Share& share, Part part);

  // Returns the pending gradients as one list of tensors.
  std::vector<torch::Tensor> state() const;
  // Takes over such a list. `require_part` throws on gradients that do not fit. InvalidArgument: it is not such a list.
  void load_state(const std::vector<torch::Tensor>& state, const std::function<void(const Part&)>& require_part);

 private:
  struct Step {
    int64_t first = 0;  // closure of share 0
    int64_t count = 0;
    // The number of dense gradients that are added up already. Those that can be are added at once, so that at best one
    // is kept.
    int64_t summed = 0;
    std::map<int64_t, Part> parts;  // the parts by share; the sum stands at summed - 1
  };

  std::map<int64_t, Step> steps_;  // the key is the ordinal
};

}  // namespace cohort
