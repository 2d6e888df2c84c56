// The weights that a model starts from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cohort/train/model.h"

namespace cohort {

// Sets the weights of the model to those of a safetensors file or of a checkpoint's folder; with `head` to all but
// those of the module of that name, and what the file lacks stays as it is. InvalidArgument: there are none.
void start_from(const std::filesystem::path& place, const std::optional<std::string>& head, Model& built);

}  // namespace cohort
