// Keras' files of models and of weights. A wing adds the functions (base/extension.h).
#pragma once

#include <filesystem>

#include "base/extension.h"
#include "cohort/train/model.h"

namespace cohort {

struct KerasFiles {
  void (*save_model)(const Model& model, const std::filesystem::path& file);
  void (*save_weights)(const Model& model, const std::filesystem::path& file);
  void (*load_weights)(const Model& model, const std::filesystem::path& file);
};

// Returns the functions for a file. Unimplemented: the build lacks them.
inline const KerasFiles& keras_files(const std::filesystem::path& file) {
  return extension_of<KerasFiles>("keras", "[model] " + file.string());
}

}  // namespace cohort
