// Metrics of segmentations, by the names that they have in Keras 3, with its options and defaults.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/metric.h"

namespace cohort {

struct IoUOptions {
  int64_t num_classes = 0;                             // needed
  std::vector<int64_t> target_class_ids = {};          // needed: those whose mean is the metric
  std::optional<int64_t> ignore_class = std::nullopt;  // labels of this class do not count
  bool sparse_y_true = true;                           // targets are labels instead of scores of the classes
  bool sparse_y_pred = true;                           // predictions are labels instead of scores of the classes
  int64_t axis = -1;                                   // the dimension of the scores
  // Counts a weight without its fraction, as Keras does, whose counts are integers.
  bool truncate_weights = true;
  std::string name = "io_u";  // the name in logs
};
// Hits / (labels or predictions of a class), the mean over some classes.
Metric IoU(const IoUOptions& options);

struct MeanIoUOptions {
  int64_t num_classes = 0;                             // needed
  std::optional<int64_t> ignore_class = std::nullopt;  // labels of this class do not count
  bool sparse_y_true = true;                           // targets are labels instead of scores of the classes
  bool sparse_y_pred = true;                           // predictions are labels instead of scores of the classes
  int64_t axis = -1;                                   // the dimension of the scores
  // Counts a weight without its fraction, as Keras does, whose counts are integers.
  bool truncate_weights = true;
  std::string name = "mean_io_u";  // the name in logs
};
// IoU() over all classes that occur.
Metric MeanIoU(const MeanIoUOptions& options);

struct OneHotIoUOptions {
  int64_t num_classes = 0;                             // needed
  std::vector<int64_t> target_class_ids = {};          // needed: those whose mean is the metric
  std::optional<int64_t> ignore_class = std::nullopt;  // labels of this class do not count
  bool sparse_y_pred = false;                          // predictions are labels instead of scores of the classes
  int64_t axis = -1;                                   // the dimension of the scores
  // Counts a weight without its fraction, as Keras does, whose counts are integers.
  bool truncate_weights = true;
  std::string name = "one_hot_io_u";  // the name in logs
};
// IoU() of one-hot targets.
Metric OneHotIoU(const OneHotIoUOptions& options);

struct OneHotMeanIoUOptions {
  int64_t num_classes = 0;                             // needed
  std::optional<int64_t> ignore_class = std::nullopt;  // labels of this class do not count
  bool sparse_y_pred = false;                          // predictions are labels instead of scores of the classes
  int64_t axis = -1;                                   // the dimension of the scores
  // Counts a weight without its fraction, as Keras does, whose counts are integers.
  bool truncate_weights = true;
  std::string name = "one_hot_mean_io_u";  // the name in logs
};
// MeanIoU() of one-hot targets.
Metric OneHotMeanIoU(const OneHotMeanIoUOptions& options);

struct BinaryIoUOptions {
  std::vector<int64_t> target_class_ids = {0, 1};  // those whose mean is the metric
  double threshold = 0.5;                          // a prediction that is at least so high means 1
  // Counts a weight without its fraction, as Keras does, whose counts are integers.
  bool truncate_weights = true;
  std::string name = "binary_io_u";  // the name in logs
};
// IoU() of two classes.
Metric BinaryIoU(const BinaryIoUOptions& options = {});

}  // namespace cohort
