// Images from a folder of any kind; its content decides how it is read.
#pragma once

#include <string>
#include <vector>

#include "cohort/models/image_classification.h"
#include "models/tasks/task_source.h"

namespace cohort {

struct ImageSource {
  Dataset train;       // x: uint8 [1 or 3, height, width], or what the model takes (ready); y: int64
  Dataset validation;  // as train
  std::string description;
  int64_t num_classes = 0;                    // 0: not known
  bool ready = false;                         // x is what the model takes, without augmentation
  std::vector<int64_t> size = {};             // height and width of every image; empty: they differ, or are not known
  std::vector<std::string> class_names = {};  // in the order of the labels; empty: not known
};

// Opens the data. Without `training` validation data are enough, which then stand for both. InvalidArgument: there is
// no folder, or nothing known in it.
ImageSource open_images(const ImageClassificationTask& task, const RuntimeConfig& runtime, bool training);

// Returns the image in the channels that the model takes: grey is repeated, colours become their brightness.
torch::Tensor with_channels(const torch::Tensor& image, int64_t wanted);
// Returns the dtype of that name: float32, float16 or bfloat16.
torch::ScalarType dtype_of(const std::string& name);

// Returns the number of threads that decode.
int decoding_threads(const RuntimeConfig& runtime);
// Returns the seed of a data set.
uint64_t seed_of(const ImageDataConfig& data, const RuntimeConfig& runtime);
// Returns the size to which an image is decoded: an image that is resized anyway need not be decoded in full.
int64_t smallest_side(const ImageClassificationTask& task);

// The way in which pairs of training examples are mixed.
struct Mixing {
  double mixup_alpha = 0.0;
  double cutmix_alpha = 0.0;
  double prob = 1.0;
  double switch_prob = 0.5;

  bool any() const { return mixup_alpha > 0.0 || cutmix_alpha > 0.0; }
};
// Returns how pairs of training examples are mixed.
Mixing mixing_of(const ImageDataConfig& data);

// Returns the dtype to which images are rounded.
torch::ScalarType image_dtype(const ImageDataConfig& data);

// Returns the training data: decoded, augmented, in batches, without an end.
Dataset training_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                         bool one_hot);
// Returns the validation data: decoded, in batches.
Dataset validation_batches(const ImageSource& source, const ImageClassificationTask& task, const RuntimeConfig& runtime,
                           bool one_hot);

}  // namespace cohort
