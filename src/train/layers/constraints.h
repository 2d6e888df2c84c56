// What layers need for their constraints.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "cohort/train/layers/constraint.h"
#include "step/constrained.h"

namespace cohort {

// Returns a weight [outputs, inputs, places...] as a view in Keras' layout, [places..., inputs, outputs]. Biases stay.
torch::Tensor keras_kernel(const torch::Tensor& weight);
// Returns a depthwise weight [channels * multiplier, 1, height, width] as [height, width, channels, multiplier].
torch::Tensor keras_depthwise(const torch::Tensor& weight, int64_t multiplier);

// Fails with InvalidArgument for a norm of the bias of a GRU, which is one matrix of Keras and two vectors here.
void check_two_biases(std::string_view type, const Constraint& constraint);

// Base of layers whose parameters may have constraints.
class ConstrainedLayer : public Constrained {
 protected:
  // Has a parameter keep to a constraint, if there is one and the parameter is defined.
  void constrain_by(const Constraint& constraint, const torch::Tensor& parameter, View as_keras = keras_kernel) {
    if (constraint && parameter.defined()) add_constraint(parameter, std::move(as_keras), constraint);
  }
};

}  // namespace cohort
