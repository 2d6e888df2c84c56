// The metrics, by the names that they have in Keras 3, with its options and defaults. What a Metric is:
// cohort/train/metric.h. A loss is a metric, too.
//
//   model.compile({.optimizer = Adam(), .loss = ..., .metrics = {SparseCategoricalAccuracy(), MeanSquaredError()}});
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/losses.h"
#include "cohort/train/metric.h"  // IWYU pragma: export

namespace cohort {

struct MeanOptions {
  std::string name = "mean";  // in logs
};
// The mean of all predicted values.
Metric Mean(const MeanOptions& options = {});

struct AccuracyOptions {
  std::string name = "accuracy";  // in logs
};
// What Keras makes of "accuracy": chosen by the shapes. Integer labels without the class dimension: the sparse one;
// more than one value in the last dimension: the categorical one; otherwise the binary one.
Metric Accuracy(const AccuracyOptions& options = {});

struct SparseCategoricalAccuracyOptions {
  std::string name = "sparse_categorical_accuracy";  // in logs
};
// y: integers [batch, ...]; prediction: logits or probabilities [batch, ..., classes].
Metric SparseCategoricalAccuracy(const SparseCategoricalAccuracyOptions& options = {});

struct CategoricalAccuracyOptions {
  std::string name = "categorical_accuracy";  // in logs
};
// y: one-hot or probabilities of the prediction's shape.
Metric CategoricalAccuracy(const CategoricalAccuracyOptions& options = {});

struct BinaryAccuracyOptions {
  double threshold = 0.5;                // a prediction above it means 1 (0.0 for logits)
  std::string name = "binary_accuracy";  // in logs
};
// The share of predictions that equal their target after the threshold has made them 0 or 1.
Metric BinaryAccuracy(const BinaryAccuracyOptions& options = {});

struct TopKAccuracyOptions {
  int64_t k = 5;          // a label is right when it is among so many largest predictions
  std::string name = {};  // empty: sparse_top_k_categorical_accuracy or top_k_categorical_accuracy
};
// Whether the label is among the k highest predictions; a tie for the last place counts.
Metric SparseTopKCategoricalAccuracy(const TopKAccuracyOptions& options = {});
// The same for targets of the prediction's shape, whose largest element is the label.
Metric TopKCategoricalAccuracy(const TopKAccuracyOptions& options = {});

struct PrecisionOptions {
  double threshold = 0.5;                          // a prediction above it is positive (0.0 for logits)
  std::optional<int64_t> class_id = std::nullopt;  // only this one of the last dimension
  std::string name = "precision";                  // in logs
};
// True positives / predicted positives; 0 without any.
Metric Precision(const PrecisionOptions& options = {});

struct RecallOptions {
  double threshold = 0.5;                          // a prediction above counts as positive
  std::optional<int64_t> class_id = std::nullopt;  // only this one of the last dimension
  std::string name = "recall";                     // in logs
};
// True positives / positives; 0 without any.
Metric Recall(const RecallOptions& options = {});

// Which curve: true positives over false positives, or precision over recall.
enum class AucCurve { kRoc, kPr };
// How the area between two thresholds is taken: by interpolation, by the lower, or by the higher value.
enum class AucSummation { kInterpolation, kMinoring, kMajoring };

struct AucOptions {
  int64_t num_thresholds = 200;     // how many, from 0 to 1
  AucCurve curve = AucCurve::kRoc;  // which curve
  // How the area between two thresholds is taken. For kPr kInterpolation is that of Davis and Goadrich (2006).
  AucSummation summation = AucSummation::kInterpolation;
  bool from_logits = false;  // predictions are logits instead of probabilities
  std::string name = "auc";  // in logs
};
// The area under a curve, approximated at evenly spread thresholds. Predictions outside [0, 1] count as the nearer end.
Metric AUC(const AucOptions& options = {});

struct RootMeanSquaredErrorOptions {
  std::string name = "root_mean_squared_error";  // in logs
};
// The root of the mean of the squares of the differences.
Metric RootMeanSquaredError(const RootMeanSquaredErrorOptions& options = {});

}  // namespace cohort
