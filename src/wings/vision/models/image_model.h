// Makes a module from task.model.
#pragma once

#include <memory>
#include <string>

#include "cohort/models/image_classification.h"
#include "cohort/models/image_models.h"

namespace cohort {

// Makes a backbone of another type than mlp and cnn, whose classifier is called `head`. InvalidArgument: a field has a
// value that does not exist.
std::shared_ptr<LayerModule> build_backbone(const ImageModelConfig& config, const std::string& head);

// Returns the options of a backbone of the type vit. InvalidArgument: as above.
models::VisionTransformerOptions vit_options(const ImageModelConfig& config);

}  // namespace cohort
