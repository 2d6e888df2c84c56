// What layers need for their constraints.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "cohort/train/layers/constraint.h"
#include "step/constrained.h"
#include "train/layers/support.h"

namespace cohort {

// Returns a weight [outputs, inputs, places...] as a view in Keras' layout, [places..., inputs, outputs]. Biases stay.
inline torch::Tensor keras_kernel(const torch::Tensor& weight) {
  return weight.dim() < 2 ? weight : weight.movedim(at::IntArrayRef{0, 1}, at::IntArrayRef{-1, -2});
}

// Returns a depthwise weight [channels * multiplier, 1, height, width] as [height, width, channels, multiplier].
inline torch::Tensor keras_depthwise(const torch::Tensor& weight, int64_t multiplier) {
  return weight.view({weight.size(0) / multiplier, multiplier, weight.size(2), weight.size(3)}).permute({2, 3, 0, 1});
}

// Fails with InvalidArgument for a norm of the bias of a GRU, which is one matrix of Keras and two vectors here.
inline void check_two_biases(std::string_view type, const Constraint& constraint) {
  if (!constraint || std::holds_alternative<NonNeg>(constraint.kind())) return;
  fail_option(type, "bias_constraint must be NonNeg, because the bias of Keras is two vectors here");
}

// Base of layers whose parameters may have constraints.
class ConstrainedLayer : public Constrained {
 protected:
  // Has a parameter keep to a constraint, if there is one and the parameter is defined.
  void constrain_by(const Constraint& constraint, const torch::Tensor& parameter, View as_keras = keras_kernel) {
    if (constraint && parameter.defined()) add_constraint(parameter, std::move(as_keras), constraint);
  }
};

}  // namespace cohort
