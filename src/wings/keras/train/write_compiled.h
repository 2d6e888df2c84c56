// The options that a model was compiled with, and the state of its optimizer, as Keras writes them.
#pragma once

#include <string>
#include <vector>

#include "cohort/example.h"
#include "cohort/train/model.h"
#include "wings/keras/train/place.h"
#include "wings/keras/train/weight_layout.h"

namespace cohort {

// Returns "compile_config" of a model with these outputs, of which an only one may have no name. NotFound: Keras has no
// such loss, metric, optimizer or option.
Json write_compiled(const CompileOptions& options, const std::vector<std::string>& outputs, const FilePlace& place);

// Returns the variables of a compiled model's optimizer, in Keras' order. NotFound: Keras has no such state.
NamedTensors write_optimizer(const Model& model, const std::vector<BoundWeight>& weights, const FilePlace& place);

}  // namespace cohort
