// The basic losses, by the names that they have in Keras 3, with its options and defaults. cohort/train/losses.h has
// all of them, and cohort/train/loss.h says what a Loss is.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/train/loss.h"  // IWYU pragma: export

namespace cohort {

struct SparseCategoricalCrossentropyOptions {
  bool from_logits = false;  // predictions are logits (better: stable) instead of probabilities
  int64_t axis = -1;         // the dimension of the classes
  // Labels of this class do not count, neither in the sum nor in the number of values.
  std::optional<int64_t> ignore_class = std::nullopt;
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "sparse_categorical_crossentropy";        // the name in logs
};
// y: integers [batch, ...] without the class axis; prediction: [batch, ..., classes]. A label outside the classes is
// InvalidArgument on a CPU (on a GPU CUDA's device-side assertion).
Loss SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options = {});

struct CategoricalCrossentropyOptions {
  bool from_logits = false;                                    // predictions are logits instead of probabilities
  double label_smoothing = 0.0;                                // y becomes y * (1 - s) + s / classes; in [0, 1]
  int64_t axis = -1;                                           // dimension of the classes
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "categorical_crossentropy";               // the name in logs
};
// y: probabilities (one-hot or soft) of the prediction's shape.
Loss CategoricalCrossentropy(const CategoricalCrossentropyOptions& options = {});

struct BinaryCrossentropyOptions {
  bool from_logits = false;                                    // predictions are logits instead of probabilities
  double label_smoothing = 0.0;                                // y becomes y * (1 - s) + s / 2; in [0, 1]
  int64_t axis = -1;                                           // over which the mean is taken
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "binary_crossentropy";                    // the name in logs
};
// y: 0 or 1, or between, of the prediction's shape, any dtype.
Loss BinaryCrossentropy(const BinaryCrossentropyOptions& options = {});

struct MeanSquaredErrorOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "mean_squared_error";                     // the name in logs
};
// The square of the difference.
Loss MeanSquaredError(const MeanSquaredErrorOptions& options = {});

struct MeanAbsoluteErrorOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "mean_absolute_error";                    // the name in logs
};
// The absolute value of the difference.
Loss MeanAbsoluteError(const MeanAbsoluteErrorOptions& options = {});

struct HuberOptions {
  double delta = 1.0;                                          // quadratic up to here, linear beyond
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "huber_loss";                             // the name in logs
};
// Half the square of small differences, linear for larger ones (Huber, 1964).
Loss Huber(const HuberOptions& options = {});

}  // namespace cohort
