// Images in TFRecord files, as Model Garden's ImageNet has them: records that are tf.train.Examples.
#pragma once

#include <string>

#include "cohort/models/image_classification.h"

namespace cohort {

// Whether input_path names files and no folder: a pattern, several with commas between them, a file.
bool names_records(const std::string& input_path);

// x: uint8 [channels, height, width]; y: int64. The files, in an order of chance for training, are read in turns.
// NotFound: a pattern that no file fits; InvalidArgument: an address of a cloud.
Dataset record_images(const std::string& input_path, const ImageDataConfig& data, const ImageClassificationTask& task,
                      const RuntimeConfig& runtime);

}  // namespace cohort
