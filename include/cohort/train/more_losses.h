// The losses beyond the basic ones, by the names that they have in Keras 3, with its options and defaults.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/train/loss.h"

namespace cohort {

struct CategoricalFocalCrossentropyOptions {
  double alpha = 0.25;                                         // weight of all classes
  std::vector<double> class_alphas = {};                       // weight of each class; empty: alpha
  double gamma = 2.0;                                          // the exponent by which sure predictions count less
  bool from_logits = false;                                    // predictions are logits instead of probabilities
  double label_smoothing = 0.0;                                // y becomes y * (1 - s) + s / classes; in [0, 1]
  int64_t axis = -1;                                           // dimension of the classes
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "categorical_focal_crossentropy";         // the name in logs
};
// alpha * (1 - p)^gamma times the cross-entropy of each class (Lin et al., 2018). y: of the prediction's shape.
Loss CategoricalFocalCrossentropy(const CategoricalFocalCrossentropyOptions& options = {});

struct BinaryFocalCrossentropyOptions {
  bool apply_class_balancing = false;                          // weighs class 1 with alpha, class 0 with 1 - alpha
  double alpha = 0.25;                                         // weight of class 1
  double gamma = 2.0;                                          // the exponent by which sure predictions count less
  bool from_logits = false;                                    // predictions are logits instead of probabilities
  double label_smoothing = 0.0;                                // y becomes y * (1 - s) + s / 2; in [0, 1]
  int64_t axis = -1;                                           // over which the mean is taken
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "binary_focal_crossentropy";              // the name in logs
};
// (1 - p)^gamma times the binary cross-entropy, where p is the probability given to the target (Lin et al., 2018).
Loss BinaryFocalCrossentropy(const BinaryFocalCrossentropyOptions& options = {});

struct CategoricalGeneralizedCrossEntropyOptions {
  double q = 0.5;  // a number in (0, 1): near 0 as the cross-entropy, near 1 as the mean absolute error
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "categorical_generalized_cross_entropy";  // the name in logs
};
// (1 - p^q) / q, which noisy labels disturb less (Zhang and Sabuncu, 2018). y: integers; prediction: probabilities.
Loss CategoricalGeneralizedCrossEntropy(const CategoricalGeneralizedCrossEntropyOptions& options = {});

struct KLDivergenceOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "kl_divergence";                          // the name in logs
};
// The sum of y * log(y / prediction) over the last dimension; both are probabilities.
Loss KLDivergence(const KLDivergenceOptions& options = {});

struct PoissonOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "poisson";                                // the name in logs
};
// prediction - y * log(prediction).
Loss Poisson(const PoissonOptions& options = {});

struct MeanAbsolutePercentageErrorOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "mean_absolute_percentage_error";         // the name in logs
};
// 100 * |y - prediction| / |y|, where |y| is 1e-7 at least.
Loss MeanAbsolutePercentageError(const MeanAbsolutePercentageErrorOptions& options = {});

struct MeanSquaredLogarithmicErrorOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "mean_squared_logarithmic_error";         // the name in logs
};
// The square of the difference of log(1 + prediction) and log(1 + y), of which both are 1e-7 at least.
Loss MeanSquaredLogarithmicError(const MeanSquaredLogarithmicErrorOptions& options = {});

struct LogCoshOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "log_cosh";                               // the name in logs
};
// The logarithm of the hyperbolic cosine of the difference.
Loss LogCosh(const LogCoshOptions& options = {});

struct CosineSimilarityOptions {
  int64_t axis = -1;                                           // along which vectors are compared; not the batch
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "cosine_similarity";                      // the name in logs
};
// The negative cosine of the angle between y and the prediction: -1 where they agree. As a metric its sign is turned,
// so that higher is better.
Loss CosineSimilarity(const CosineSimilarityOptions& options = {});

struct HingeOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "hinge";                                  // the name in logs
};
// max(1 - y * prediction, 0). y: -1 or 1; where all targets are 0 or 1, 0 means -1.
Loss Hinge(const HingeOptions& options = {});

struct SquaredHingeOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "squared_hinge";                          // the name in logs
};
// The square of the hinge loss.
Loss SquaredHinge(const SquaredHingeOptions& options = {});

struct CategoricalHingeOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "categorical_hinge";                      // the name in logs
};
// max(1 + the largest prediction of a wrong class - that of the right one, 0). y: one-hot.
Loss CategoricalHinge(const CategoricalHingeOptions& options = {});

struct DiceOptions {
  // Dimensions that are summed over; empty: all. With dimension 0 among them there is one loss of the batch as a whole.
  std::vector<int64_t> axis = {};
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "dice";                                   // the name in logs
};
// 1 - 2 sum(y * prediction) / (sum(y) + sum(prediction)), of probabilities.
Loss Dice(const DiceOptions& options = {});

struct TverskyOptions {
  double alpha = 0.5;  // weight of what the prediction misses
  double beta = 0.5;   // weight of what it has in excess
  // Dimensions that are summed over; empty: all. With dimension 0 among them there is one loss of the batch as a whole.
  std::vector<int64_t> axis = {};
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "tversky";                                // the name in logs
};
// Dice with weights: 1 - hits / (hits + alpha * missed + beta * in excess) (Salehi et al., 2017).
Loss Tversky(const TverskyOptions& options = {});

struct CircleOptions {
  double gamma = 80.0;                                         // scale
  double margin = 0.4;                                         // the distance that the classes are to have
  bool remove_diagonal = true;                                 // an example is no positive example of itself
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "circle";                                 // the name in logs
};
// Brings the embeddings of a class together and those of others apart (Sun et al., 2020). y: integers [batch];
// prediction: embeddings [batch, size] of length 1. Each example is compared with all of the global batch; those whose
// loss is 0 do not count.
Loss Circle(const CircleOptions& options = {});

struct CtcOptions {
  LossReduction reduction = LossReduction::kSumOverBatchSize;  // the rule that makes one number of the values
  std::string name = "ctc";                                    // the name in logs
};
// Connectionist temporal classification (Graves et al., 2006). y: integers [batch, length], 0 where there is none;
// prediction: logits [batch, time, classes], of which class 0 is the blank.
Loss CTC(const CtcOptions& options = {});

}  // namespace cohort
