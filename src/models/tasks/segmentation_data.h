// Pictures with masks from a folder, or drawn ones, as batches.
#pragma once

#include <string>

#include "cohort/models/semantic_segmentation.h"

namespace cohort {

struct SegmentationSource {
  Dataset train;       // x: uint8 [1 or 3, height, width]; y: int64 [height, width]
  Dataset validation;  // as train
  std::string description;
};

// Opens the data. Without `training` validation data are enough, which then stand for both. InvalidArgument: there is
// no folder.
SegmentationSource open_pictures(const SemanticSegmentationTask& task, const RuntimeConfig& runtime, bool training);

// Returns the training data: resized, flipped, in batches, without an end.
Dataset training_pictures(const SegmentationSource& source, const SemanticSegmentationTask& task,
                          const RuntimeConfig& runtime);
// Returns the validation data: resized, in batches.
Dataset validation_pictures(const SegmentationSource& source, const SemanticSegmentationTask& task,
                            const RuntimeConfig& runtime);

}  // namespace cohort
