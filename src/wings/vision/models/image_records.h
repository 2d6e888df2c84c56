// Images in TFRecord files whose records are tf.train.Examples, as those of Model Garden's ImageNet.
#pragma once

#include <string>

#include "cohort/models/image_classification.h"

namespace cohort {

// Returns whether input_path names files instead of a folder: a file, a pattern, or several with commas between them.
bool names_records(const std::string& input_path);

// Returns the images of the files, x: uint8 [channels, height, width], y: int64. The files are read in turns, for
// training in a random order. NotFound: no file fits a pattern. InvalidArgument: it is an address of a cloud.
Dataset record_images(const std::string& input_path, const ImageDataConfig& data, const ImageClassificationTask& task,
                      const RuntimeConfig& runtime);

}  // namespace cohort
