// Rotary positions: the pair (i, i + half) of a head's numbers turns by position * theta^(-2i / size), so that the
// product of a query and a key depends on the distance between them.
#pragma once

#include <torch/types.h>

#include "cohort/models/text_models.h"

namespace cohort::models {

// The cosines and sines of the angles of positions, [steps, size of a head] each.
class Rotations {
 public:
  Rotations(int64_t steps, const DecoderOptions& options, const at::TensorOptions& like);

  // Turns x, [examples, heads, steps, size].
  torch::Tensor operator()(const torch::Tensor& x) const;

 private:
  torch::Tensor cosines_, sines_;
};

}  // namespace cohort::models
