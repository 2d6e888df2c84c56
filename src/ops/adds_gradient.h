// AddsGradient: a node of autograd that adds the gradient of a parameter to a sum itself, as a product can do while it
// is computed. That saves a later pass over memory.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <utility>

namespace cohort {

class AddsGradient {
 public:
  // Has the node ask for a sum when it makes the gradient of its input `place`, to which only a parameter leads. If the
  // sum is defined, it has the parameter's shape and dtype, and the gradient is added to it and not returned. A node
  // does so for one input; the call has no effect for others.
  void add_to(std::size_t place, std::function<torch::Tensor()> sum) {
    if (place == place_) sum_ = std::move(sum);
  }

 protected:
  // `place` is the input for which the node gains something.
  explicit AddsGradient(std::size_t place) : place_(place) {}

  std::function<torch::Tensor()> sum_;  // empty: there is none

 private:
  std::size_t place_;
};

}  // namespace cohort
