// Layers of the networks of applications.h that no layer of the core is: those of other wings, stochastic depth, and
// two ways to a classifier.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/train/layers/layer.h"
#include "train/layers/layer_row.h"

namespace cohort::applications {

// Returns a layer of another wing by the name of its sort, with these options. Unimplemented: this build lacks the
// wing.
Layer layer_of(std::string_view type, const LayerConfig& options, const std::string& name,
               std::string_view wing = "layers");

// Sets whole examples to zero while training, at this rate; the others grow by 1 / (1 - rate) (Keras' Dropout with a
// noise_shape of [batch, 1, 1, 1]).
Layer example_dropout_layer(double rate, const std::string& name);

// Makes a row of a picture's numbers as Keras' Flatten does: the channels of each place beside each other.
Layer places_first_layer(const std::string& name);

// Makes a picture of size x size of one of any size, by means.
Layer adaptive_pool_layer(int64_t size, const std::string& name);

}  // namespace cohort::applications
