// The experiments that TensorFlow's Model Garden has for images (official/vision/configs/image_classification.py),
// under its names: what its configuration files are applied to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/models/experiment.h"

namespace cohort {

std::vector<Experiment> model_garden_experiments();

// Of one of its experiments whose model is not here: what it trains, and the nearest experiment; else empty.
std::string missing_of_model_garden(std::string_view name);

}  // namespace cohort
