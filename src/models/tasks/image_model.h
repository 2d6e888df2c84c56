// From task.model to a module.
#pragma once

#include <memory>
#include <string>

#include "cohort/models/image_classification.h"

namespace cohort {

// Not of the types mlp and cnn. `head`: the name of the classifier. InvalidArgument: a field's value that there is not.
std::shared_ptr<LayerModule> build_backbone(const ImageModelConfig& config, const std::string& head);

}  // namespace cohort
