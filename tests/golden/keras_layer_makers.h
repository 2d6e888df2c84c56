// The layers of Keras' facts, made from their options, and their tensors in the layouts of this library.
#pragma once

#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/train/layers/layer.h"

namespace cohort::testing {

// Returns the layer of a case; nothing for a sort that is not here.
std::optional<Layer> keras_layer(const nlohmann::json& golden);

// Returns a tensor of Keras', whose channels are last, as the layer of that name takes or gives it.
torch::Tensor from_keras_layout(const std::string& layer, const torch::Tensor& keras);

// Returns the parameters, by name, that a weight is here, or its gradient.
std::vector<std::pair<std::string, torch::Tensor>> keras_parameters(const nlohmann::json& golden, std::size_t weight,
                                                                    const torch::Tensor& value);

}  // namespace cohort::testing
