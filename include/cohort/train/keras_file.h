// Whole models in Keras' own format, .keras: the layers, their weights, and what compile() was given.
//
//   cohort::Model model = cohort::load_model("m.keras");   // written by Keras 3: model.save("m.keras")
//   model.evaluate(x, y);                                  // Keras' numbers
//   cohort::save_model(model, "trained.keras");            // keras.saving.load_model("trained.keras")
//
// A file is data that somebody brings. Only layers, losses, metrics and optimizers that this library knows are made;
// code in a file never runs, and no other file is opened. docs/wings/keras.md lists what can be read and written.
#pragma once

#include <filesystem>

#include "cohort/train/model.h"

namespace cohort {

struct LoadModelOptions {
  // The model is compiled as it was in Keras, and the state of the optimizer is loaded. False: only layers and weights.
  bool compile = true;
};

// Reads a Sequential or a functional model that Keras 3 has written, and builds it under the current strategy. The
// layers have Keras' layout of images, channels last. All of several workers read the file.
// NotFound: there is no such file, or it names a class or an option that the library does not have. DataLoss: it is
// damaged, or its parts do not fit each other. InvalidArgument: a layer refuses its options or its input. The messages
// name the file and the place.
Model load_model(const std::filesystem::path& file, const LoadModelOptions& options = {});

struct SaveModelOptions {
  // Writes what the model was compiled with, and the state of its optimizer, so that training continues in Keras.
  // False: only layers and weights.
  bool compile = true;
};

// Writes a built Sequential or Functional as such a file, with its weights as they are now, float32 or float64. The
// file appears whole or not at all. All of several workers call it, and the chief writes.
// FailedPrecondition: the model is not built. NotFound: Keras has no such layer, loss, metric, optimizer or option,
// which the message names, or there is no such folder. Unavailable: the file cannot be written.
void save_model(const Model& model, const std::filesystem::path& file, const SaveModelOptions& options = {});

// Loads the weights that Keras 3 has saved by model.save_weights("m.weights.h5"), or those of a whole model in a file
// called *.keras, into a built Sequential or Functional with the same layers in the same order. Their layout of images
// does not matter, so that networks of applications.h take them in Keras' form. All of several workers read the file.
// FailedPrecondition: the model is not built. NotFound: there is no such file, the model is not made of
// layers, or one of its weights has no place in Keras' files.
// DataLoss: the file is damaged, lacks a weight, has one more, or one of another shape; no weight has changed then.
void load_keras_weights(const Model& model, const std::filesystem::path& file);

// Writes such a file, which appears whole or not at all. All of several workers call it, and the chief writes.
// FailedPrecondition: the model is not built. NotFound: as load_keras_weights(), or there is no such
// folder. Unavailable: the file cannot be written.
void save_keras_weights(const Model& model, const std::filesystem::path& file);

}  // namespace cohort
