// A convolution whose interior is computed while the halos travel.
#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

#include "wings/mesh/strategy/space/divided.h"

namespace cohort::space {

struct OwnConvolution {
  torch::Tensor part;          // the own rows of dimension `dim`, and in the others what the windows see
  torch::Tensor weight, bias;  // bias: undefined for none
  std::vector<int64_t> stride, padding, dilation;  // the padding of `dim` does not count
  int64_t groups = 1;
  int64_t dim = 2;
  Window window;        // along dim
  int64_t outputs = 0;  // of the whole, along dim
};

// Returns this part's outputs; nullopt where the own rows alone, padded alike at both ends, do not give as many
// outputs, and where autocast is on. The rows that travel are those of fetch(), so that the replicas of a line may come
// to different answers.
std::optional<torch::Tensor> convolve_own(const OwnConvolution& convolution, const Layout& layout);

}  // namespace cohort::space
