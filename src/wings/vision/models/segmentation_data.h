// Pictures with masks from a folder, or drawn ones, as batches.
#pragma once

#include "cohort/models/semantic_segmentation.h"
#include "models/tasks/task_source.h"

namespace cohort {

// Opens the data, x: uint8 [1 or 3, height, width], y: int64 [height, width]; see open_source().
TaskSource open_pictures(const SemanticSegmentationTask& task, const RuntimeConfig& runtime, bool training);

// Returns the training data: resized, flipped, in batches, without an end.
Dataset training_pictures(const TaskSource& source, const SemanticSegmentationTask& task, const RuntimeConfig& runtime);
// Returns the validation data: resized, in batches.
Dataset validation_pictures(const TaskSource& source, const SemanticSegmentationTask& task,
                            const RuntimeConfig& runtime);

}  // namespace cohort
