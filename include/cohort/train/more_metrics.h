// The metrics beyond the basic ones, by the names that they have in Keras 3, with its options and defaults.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/metric.h"

namespace cohort {

struct PrecisionOptions {
  // A prediction above it is positive (0.0 for logits). Unset: 0.5, or with top_k none.
  std::optional<double> threshold = std::nullopt;
  std::vector<double> thresholds = {};             // several: the metric has a number for each
  std::optional<int64_t> top_k = std::nullopt;     // only so many highest of the last dimension are positive
  std::optional<int64_t> class_id = std::nullopt;  // only this one of the last dimension
  std::string name = "precision";                  // the name in logs
};
// True positives / predicted positives; 0 without any.
Metric Precision(const PrecisionOptions& options = {});

struct RecallOptions {
  // A prediction above it is positive (0.0 for logits). Unset: 0.5, or with top_k none.
  std::optional<double> threshold = std::nullopt;
  std::vector<double> thresholds = {};             // several: the metric has a number for each
  std::optional<int64_t> top_k = std::nullopt;     // only so many highest of the last dimension are positive
  std::optional<int64_t> class_id = std::nullopt;  // only this one of the last dimension
  std::string name = "recall";                     // the name in logs
};
// True positives / positives; 0 without any.
Metric Recall(const RecallOptions& options = {});

struct ConfusionCountOptions {
  std::vector<double> thresholds = {};  // a prediction above it is positive; empty: 0.5; several: a number for each
  std::string name = {};                // empty: true_positives, false_positives, true_negatives or false_negatives
};
// The weights of the positive predictions that are right.
Metric TruePositives(const ConfusionCountOptions& options = {});
// The weights of the positive predictions that are wrong.
Metric FalsePositives(const ConfusionCountOptions& options = {});
// The weights of the negative predictions that are right.
Metric TrueNegatives(const ConfusionCountOptions& options = {});
// The weights of the negative predictions that are wrong.
Metric FalseNegatives(const ConfusionCountOptions& options = {});

struct PrecisionAtRecallOptions {
  double recall = 0.5;                             // the least value that counts
  int64_t num_thresholds = 200;                    // the number of thresholds that are tried, from 0 to 1
  std::optional<int64_t> class_id = std::nullopt;  // only this one of the last dimension
  std::string name = "precision_at_recall";        // the name in logs
};
// The best precision among the thresholds whose recall is high enough; 0 where none is.
Metric PrecisionAtRecall(const PrecisionAtRecallOptions& options);

struct RecallAtPrecisionOptions {
  double precision = 0.5;                          // the least value that counts
  int64_t num_thresholds = 200;                    // the number of thresholds that are tried, from 0 to 1
  std::optional<int64_t> class_id = std::nullopt;  // only this one of the last dimension
  std::string name = "recall_at_precision";        // the name in logs
};
// The best recall among the thresholds whose precision is high enough; 0 where none is.
Metric RecallAtPrecision(const RecallAtPrecisionOptions& options);

struct SensitivityAtSpecificityOptions {
  double specificity = 0.5;                         // the least value that counts
  int64_t num_thresholds = 200;                     // the number of thresholds that are tried, from 0 to 1
  std::optional<int64_t> class_id = std::nullopt;   // only this one of the last dimension
  std::string name = "sensitivity_at_specificity";  // the name in logs
};
// The best recall among the thresholds at which enough of the negative examples are negative; 0 where none is.
Metric SensitivityAtSpecificity(const SensitivityAtSpecificityOptions& options);

struct SpecificityAtSensitivityOptions {
  double sensitivity = 0.5;                         // the least value that counts
  int64_t num_thresholds = 200;                     // the number of thresholds that are tried, from 0 to 1
  std::optional<int64_t> class_id = std::nullopt;   // only this one of the last dimension
  std::string name = "specificity_at_sensitivity";  // the name in logs
};
// The largest share of the negative examples that are negative, among the thresholds whose recall is high enough.
Metric SpecificityAtSensitivity(const SpecificityAtSensitivityOptions& options);

// The curve: true positives over false positives, or precision over recall.
enum class AucCurve { kRoc, kPr };
// The rule for the area between two thresholds: by interpolation, by the lower, or by the higher value.
enum class AucSummation { kInterpolation, kMinoring, kMajoring };

struct AucOptions {
  int64_t num_thresholds = 200;         // the number of thresholds, from 0 to 1
  std::vector<double> thresholds = {};  // these, and 0 and 1, instead
  AucCurve curve = AucCurve::kRoc;      // the curve
  // The rule for the area between two thresholds. kInterpolation of kPr is the rule of Davis and Goadrich (2006).
  AucSummation summation = AucSummation::kInterpolation;
  bool from_logits = false;                // predictions are logits instead of probabilities
  bool multi_label = false;                // the mean of the areas of each of the last dimension
  int64_t num_labels = 0;                  // the number of labels, with multi_label; 0: the first batch tells
  std::vector<double> label_weights = {};  // the weights of the labels in the last dimension; empty: all 1
  std::string name = "auc";                // the name in logs
};
// The area under a curve, approximated at evenly spread thresholds. Predictions outside [0, 1] count as the nearer end.
Metric AUC(const AucOptions& options = {});

// The way in which the scores of the classes become one: not at all, by counting all classes together, as their mean,
// or as their mean weighted by the number of their examples.
enum class ScoreAverage { kNone, kMicro, kMacro, kWeighted };

struct FBetaScoreOptions {
  double beta = 1.0;                               // the factor by which recall counts more than precision
  ScoreAverage average = ScoreAverage::kNone;      // kNone: the metric has a number for each class
  std::optional<double> threshold = std::nullopt;  // a prediction above it is positive; unset: the highest is
  std::string name = "fbeta_score";                // the name in logs
};
// The weighted harmonic mean of precision and recall. y and prediction: [batch, classes].
Metric FBetaScore(const FBetaScoreOptions& options = {});

struct F1ScoreOptions {
  ScoreAverage average = ScoreAverage::kNone;      // kNone: the metric has a number for each class
  std::optional<double> threshold = std::nullopt;  // a prediction above it is positive; unset: the highest is
  std::string name = "f1_score";                   // the name in logs
};
// FBetaScore() with beta 1.
Metric F1Score(const F1ScoreOptions& options = {});

struct RootMeanSquaredErrorOptions {
  std::string name = "root_mean_squared_error";  // the name in logs
};
// The root of the mean of the squares of the differences.
Metric RootMeanSquaredError(const RootMeanSquaredErrorOptions& options = {});

struct LogCoshErrorOptions {
  std::string name = "logcosh";  // the name in logs
};
// The mean of LogCosh().
Metric LogCoshError(const LogCoshErrorOptions& options = {});

// The way in which the scores of several outputs become one: not at all, as their mean, or as their mean weighted by
// the variation of the targets.
enum class R2Aggregation { kNone, kUniformAverage, kVarianceWeightedAverage };

struct R2ScoreOptions {
  R2Aggregation class_aggregation = R2Aggregation::kUniformAverage;  // kNone: the metric has a number for each output
  int64_t num_regressors = 0;                                        // adjusts the score for so many variables; 0: not
  std::string name = "r2_score";                                     // the name in logs
};
// The coefficient of determination: 1 - squared errors / squared deviations of the targets. y, prediction: [batch,
// outputs].
Metric R2Score(const R2ScoreOptions& options = {});

struct PearsonCorrelationOptions {
  int64_t axis = -1;                         // along which vectors are compared; not the batch
  std::string name = "pearson_correlation";  // the name in logs
};
// The mean over the examples of the linear correlation of target and prediction.
Metric PearsonCorrelation(const PearsonCorrelationOptions& options = {});

struct ConcordanceCorrelationOptions {
  int64_t axis = -1;                             // along which vectors are compared; not the batch
  std::string name = "concordance_correlation";  // the name in logs
};
// The same, less where the two differ in mean or in scale (Lin, 1989).
Metric ConcordanceCorrelation(const ConcordanceCorrelationOptions& options = {});

}  // namespace cohort
