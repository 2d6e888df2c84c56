// Optimizers and schedules of the rate in Keras' files, with the state of a model's optimizer.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/train/model.h"
#include "wings/keras/train/place.h"
#include "wings/keras/train/weight_layout.h"

namespace cohort {

// Makes an optimizer of its object. NotFound: Keras' class, or an option of it, is not supported.
Optimizer read_keras_optimizer(const Json& value, const FilePlace& place);
// Returns the object of an optimizer. NotFound: Keras has no such optimizer or option.
Json write_keras_optimizer(const Optimizer& optimizer, const FilePlace& place);

// Returns a number among the options of an optimizer that Keras has.
double number_of_optimizer(const Optimizer& optimizer, std::string_view name);

// Loads the state of a compiled model's optimizer, whose weights are bound. DataLoss: the number or the shape of the
// variables does not fit the model.
void load_optimizer(const Model& model, const std::map<std::string, torch::Tensor>& file,
                    const std::vector<BoundWeight>& weights, const FilePlace& place);

// Returns the variables of a compiled model's optimizer, in Keras' order. NotFound: Keras has no such state.
NamedTensors write_optimizer(const Model& model, const std::vector<BoundWeight>& weights, const FilePlace& place);

}  // namespace cohort
