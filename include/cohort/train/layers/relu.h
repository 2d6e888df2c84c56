// Rectifiers with numbers of their own; those without are activations (Activation::kRelu, kRelu6, kLeakyRelu).
#pragma once

#include <optional>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

struct ReLUOptions {
  std::optional<double> max_value = std::nullopt;  // the largest output; unset: none
  double negative_slope = 0.0;                     // the slope below the threshold
  double threshold = 0.0;                          // smaller inputs are not passed on
  std::string name = {};                           // empty: the model gives one
};
// x from the threshold on, at most max_value; negative_slope * (x - threshold) below it. Any shape.
Layer ReLU(const ReLUOptions& options = {});

struct LeakyReLUOptions {
  double negative_slope = 0.3;  // the slope below zero
  std::string name = {};        // empty: the model gives one
};
// x where it is positive, negative_slope * x elsewhere. Any shape.
Layer LeakyReLU(const LeakyReLUOptions& options = {});

}  // namespace cohort
