// Which weight of a file belongs to which of a model's layers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "wings/keras/train/weight_layout.h"

namespace cohort {

// Returns the weights of a layer whose group in a file and whose name in the model are given, in Keras' order. With
// `present`, the names in the model that there are; without, all that the sort of layer may have.
std::vector<BoundWeight> bound_weights(const Layer& layer, const std::string& group, const std::string& name,
                                       const std::map<std::string, torch::Tensor>* present);

// Returns the number of elements of the largest weights that a layer would have for an input of this shape.
double largest_weights(const Layer& layer, const Shape& input);

// Returns Keras' class of a layer, or our sort where there is none.
std::string class_of(const Layer& layer);

// Returns the names that Keras gives to the groups of layers: "dense", "dense_1", by the classes in their order.
std::vector<std::string> group_names(const std::vector<std::string>& classes);

}  // namespace cohort
