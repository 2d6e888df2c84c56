// The loss and the metrics of segmentation.
#pragma once

#include <optional>
#include <vector>

#include "cohort/train/loss.h"
#include "cohort/train/metric.h"

namespace cohort {

struct SegmentationLossOptions {
  int64_t num_classes = 2;                             // classes of a pixel
  double weight = 1.0;                                 // factor of the loss
  double label_smoothing = 0.0;                        // a label becomes (1 - s) of itself and s / classes
  std::vector<double> class_weights = {};              // factor of the pixels of each class; empty: 1
  bool binary = false;                                 // each class by a sigmoid, instead of all by a softmax
  double top_k = 1.0;                                  // part of the batch's pixels that counts: the worst ones
  std::optional<int64_t> ignore_label = std::nullopt;  // the label of pixels that do not count
};
// The cross-entropy of each pixel, as Model Garden's SegmentationLoss has it: the mean over the pixels that count, of
// the whole batch; class weights do not change what it is divided by. y: int64 [examples, height, width]; prediction:
// logits [examples, classes, height, width]. InvalidArgument: as many class weights as classes are wanted.
Loss segmentation_loss(const SegmentationLossOptions& options);

// The part of the pixels whose class is predicted, under the name "accuracy", of y and prediction as above.
Metric pixel_accuracy(std::optional<int64_t> ignore_label);

}  // namespace cohort
