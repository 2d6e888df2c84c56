// Images from a folder of whichever kind: what is in it decides how it is read.
#pragma once

#include <string>

#include "cohort/image_classification.h"

namespace cohort {

struct ImageSource {
  Dataset train;       // x: uint8 [channels, height, width], or what MNIST has; y: int64
  Dataset validation;  // the same
  std::string description;
  int64_t num_classes = 0;  // 0: not known
  bool ready = false;       // x is what the model takes, and is not augmented
};

// InvalidArgument: there is no folder, or nothing in it that is known.
ImageSource open_images(const ImageClassificationTask& task, const RuntimeConfig& runtime);

// Decoded, augmented, in batches, without an end.
Dataset training_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                         bool one_hot);
Dataset validation_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                           bool one_hot);

}  // namespace cohort
