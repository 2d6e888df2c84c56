// Keras' optimizers by their names and options.
#pragma once

#include <nlohmann/json.hpp>

#include "cohort/optimizer.h"

namespace cohort::testing {

// Makes the optimizer that a case names ("optimizer", "options"); throws where it is not there, or an option of it.
Optimizer keras_optimizer(const nlohmann::json& golden);

}  // namespace cohort::testing
