// AddsGradient: an operation's node of autograd that adds the gradient of a parameter to a sum itself, as a product can
// while it is made. The pass over memory that would add it later is saved.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>

namespace cohort {

class AddsGradient {
 public:
  virtual ~AddsGradient() = default;

  // Has the node ask for a sum when it makes the gradient of its input `place`, to which only a parameter leads. If the
  // sum is defined, it has the parameter's shape and dtype, and the gradient is added to it and not returned. Nodes do
  // so for the inputs for which they gain something.
  virtual void add_to(std::size_t place, std::function<torch::Tensor()> sum) = 0;

 protected:
  AddsGradient() = default;
  AddsGradient(const AddsGradient&) = default;
  AddsGradient& operator=(const AddsGradient&) = default;
};

}  // namespace cohort
