// The weights that a model starts from: a safetensors file, a checkpoint's folder, or a folder as Hugging Face's
// transformers write it, with config.json and the weights in one file or in several with an index.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cohort/train/model.h"

namespace cohort {

// Returns whether the place is a folder of Hugging Face's.
bool is_hugging_face(const std::filesystem::path& place);

// Sets the weights of the model to those of the place; with `head` to all but those of the module of that name, and
// what the place lacks stays as it is. InvalidArgument: there are none.
void start_from(const std::filesystem::path& place, const std::optional<std::string>& head, Model& built);

// The same for a model with adapters (models::LoraOptions), which stay as they are if the place has none. NotFound: it
// lacks something else.
void start_beside_adapters(const std::filesystem::path& place, Model& built);

// The same for models::bert(). Names of older files (LayerNorm.gamma) are understood, and what the model has no place
// for is left out. NotFound: the place lacks something that the model has.
void start_from_bert(const std::filesystem::path& place, Model& built);

}  // namespace cohort
