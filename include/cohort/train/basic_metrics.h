// The basic metrics, by the names that they have in Keras 3, with its options and defaults. cohort/train/metrics.h has
// all of them, and cohort/train/metric.h says what a Metric is. A loss is a metric, too.
//
//   model.compile({.optimizer = Adam(), .loss = ..., .metrics = {SparseCategoricalAccuracy(), MeanSquaredError()}});
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "cohort/train/basic_losses.h"
#include "cohort/train/metric.h"  // IWYU pragma: export

namespace cohort {

struct MeanOptions {
  std::string name = "mean";  // the name in logs
};
// The mean of all predicted values.
Metric Mean(const MeanOptions& options = {});

struct SumOptions {
  std::string name = "sum";  // the name in logs
};
// The sum of all predicted values.
Metric Sum(const SumOptions& options = {});

struct AccuracyOptions {
  std::string name = "accuracy";  // the name in logs
};
// The metric that Keras makes of "accuracy": it is chosen by the shapes. Integer labels without the class dimension:
// the sparse one; more than one value in the last dimension: the categorical one; otherwise the binary one.
Metric Accuracy(const AccuracyOptions& options = {});
// The share of predictions that are equal to their targets, numbers or labels: what Keras' class Accuracy is.
Metric EqualityAccuracy(const AccuracyOptions& options = {});

struct CrossentropyOptions {
  std::string name = "crossentropy";  // the name in logs
};
// The metric that Keras makes of "crossentropy": the cross-entropy of probabilities that the shapes suggest, as for
// Accuracy().
Metric Crossentropy(const CrossentropyOptions& options = {});

struct SparseCategoricalAccuracyOptions {
  std::string name = "sparse_categorical_accuracy";  // the name in logs
};
// y: integers [batch, ...]; prediction: logits or probabilities [batch, ..., classes].
Metric SparseCategoricalAccuracy(const SparseCategoricalAccuracyOptions& options = {});

struct CategoricalAccuracyOptions {
  std::string name = "categorical_accuracy";  // the name in logs
};
// y: one-hot or probabilities of the prediction's shape.
Metric CategoricalAccuracy(const CategoricalAccuracyOptions& options = {});

struct BinaryAccuracyOptions {
  double threshold = 0.5;                // a prediction above it means 1 (0.0 for logits)
  std::string name = "binary_accuracy";  // the name in logs
};
// The share of predictions that equal their target after the threshold has made them 0 or 1.
Metric BinaryAccuracy(const BinaryAccuracyOptions& options = {});

struct TopKAccuracyOptions {
  int64_t k = 5;          // a label is right when it is among so many largest predictions
  std::string name = {};  // empty: sparse_top_k_categorical_accuracy or top_k_categorical_accuracy
};
// The part of the examples whose label is among the k highest predictions; a tie for the last place counts.
Metric SparseTopKCategoricalAccuracy(const TopKAccuracyOptions& options = {});
// The same for targets of the prediction's shape, whose largest element is the label.
Metric TopKCategoricalAccuracy(const TopKAccuracyOptions& options = {});

}  // namespace cohort
