// Values of options: Keras' JSON and ours.
#pragma once

#include "train/layers/layer_row.h"
#include "wings/keras/train/place.h"

namespace cohort {

// Return what an option's JSON stands for. NotFound: the class or one of its options is not supported.
Initializer initializer_of(const Json& value, const FilePlace& place);
Regularizer regularizer_of(const Json& value, const FilePlace& place);
Activation activation_of(const Json& value, const FilePlace& place);
Constraint constraint_of(const Json& value, const FilePlace& place);
// Returns the value of an option that is none of these and no layer.
OptionValue plain_value(const Json& value, const FilePlace& place);

// Returns the JSON of a value. NotFound: it is a function of the user's.
Json json_of(const OptionValue& value, const FilePlace& place);

// Returns an object of Keras' with its module, as files have it.
Json object_json(const char* module, const std::string& class_name, Json config);

}  // namespace cohort
