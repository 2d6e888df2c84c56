// The input of windows that slide over a divided tensor.
#pragma once

#include <torch/types.h>

#include <utility>
#include <vector>

#include "wings/mesh/strategy/space/rules.h"

namespace cohort::space {

// Returns a number for each of `rank` dimensions, from a list that has as many, or one for all.
std::vector<int64_t> spread(std::vector<int64_t> list, int64_t rank);

// What a replica computes its outputs from. The windows are those of the last dimensions.
struct Windowed {
  torch::Tensor part;           // the rows that the windows see, without padding
  std::vector<Window> windows;  // with the padding that this part has: at the edges of the whole
  std::vector<int64_t> wanted;  // the outputs of this part along each of the windows' dimensions
  Layout outputs;               // of as many channels as the input

  // Fetches the rows of a dimension that fetch_windows() has left out.
  void fetch_rows(const Layout& layout, int64_t dim, const Window& window);
  // Returns whether this part has no outputs.
  bool empty() const;
  // Returns the part with as much padding in it as the operation's own, which is the same before and after and
  // returned too, cannot add.
  std::pair<torch::Tensor, std::vector<int64_t>> padded(double fill) const;
  // Returns the outputs without those behind the last one, which padding at both ends makes.
  torch::Tensor cropped(const torch::Tensor& y) const;
};

// Fetches the rows that the windows of this part's outputs see, but not those of dimension `left_out`. Refuses windows
// that fit nowhere.
Windowed fetch_windows(DividedCall& call, const torch::Tensor& x, const std::vector<Window>& windows,
                       int64_t left_out = -1);

}  // namespace cohort::space
