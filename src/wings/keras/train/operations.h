// Keras' functions of tensors in the graphs of config.json.
#pragma once

#include <string>
#include <vector>

#include "cohort/train/functional.h"
#include "wings/keras/train/place.h"

namespace cohort {

// Calls a function of Keras' on tensors and numbers. `key` is that of GetItem. NotFound: it is not supported.
SymbolicTensor operate(const std::string& name, const std::vector<SymbolicOperand>& sides, const Json& config,
                       const Json& key, const FilePlace& here);

}  // namespace cohort
