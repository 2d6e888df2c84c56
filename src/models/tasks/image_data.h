// Images from a folder of whichever kind: what is in it decides how it is read.
#pragma once

#include <string>
#include <vector>

#include "cohort/models/image_classification.h"

namespace cohort {

struct ImageSource {
  Dataset train;       // x: uint8 [1 or 3, height, width], or what the model takes (ready); y: int64
  Dataset validation;  // the same
  std::string description;
  int64_t num_classes = 0;         // 0: not known
  bool ready = false;              // x is what the model takes, and is not augmented
  std::vector<int64_t> size = {};  // of every image, height and width; empty: they differ, or it is not known
};

// Without `training` data to validate with are enough: they then stand for both. InvalidArgument: there is no folder,
// or nothing in it that is known.
ImageSource open_images(const ImageClassificationTask& task, const RuntimeConfig& runtime, bool training);

int decoding_threads(const RuntimeConfig& runtime);
uint64_t seed_of(const ImageDataConfig& data, const RuntimeConfig& runtime);
// Of an image that is decoded: what is resized anyway need not be decoded in full.
int64_t smallest_side(const ImageClassificationTask& task);

// What happens to pairs of training examples.
struct Mixing {
  double mixup_alpha = 0.0;
  double cutmix_alpha = 0.0;
  double prob = 1.0;
  double switch_prob = 0.5;

  bool any() const { return mixup_alpha > 0.0 || cutmix_alpha > 0.0; }
};
// InvalidArgument: it is said in two places.
Mixing mixing_of(const ImageDataConfig& data);

// Decoded, augmented, in batches, without an end.
Dataset training_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                         bool one_hot);
Dataset validation_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                           bool one_hot);

}  // namespace cohort
