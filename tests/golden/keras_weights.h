// The weights of Keras' layers in the layouts of this library.
#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

namespace cohort::testing {

// Returns the parameters and buffers, by name, that a weight of a layer is here: "lstm_cell/kernel" of "LSTM", or
// "dense/kernel" of "TimeDistributed". The two biases of a GRU are one weight of Keras.
std::vector<std::pair<std::string, torch::Tensor>> own_weights(const std::string& layer, const std::string& path,
                                                               const torch::Tensor& keras);

}  // namespace cohort::testing
