// Keras' files, as the core knows them.
#include "base/extension.h"
#include "cohort/train/keras_file.h"
#include "train/model/keras_files.h"

namespace cohort {

void install_keras() {
  extend<KerasFiles>(
      {.save_model = [](const Model& model, const std::filesystem::path& file) { save_model(model, file); },
       .save_weights = save_keras_weights,
       .load_weights = load_keras_weights});
}

}  // namespace cohort
