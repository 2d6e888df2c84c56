// The experiments of TensorFlow's Model Garden for images (official/vision/configs/image_classification.py), under its
// names, to which its configuration files are applied.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/models/experiment.h"

namespace cohort {

std::vector<Experiment> model_garden_experiments();

// Returns a sentence with the model and the nearest experiment if the name is an experiment of Model Garden whose model
// is not here; else an empty text.
std::string missing_of_model_garden(std::string_view name);

}  // namespace cohort
