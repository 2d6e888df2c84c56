// The metrics that compile("name") knows: Keras' names of classes and functions, and their short forms.
#include <array>

#include "base/named.h"
#include "cohort/train/metrics.h"

namespace cohort {

namespace {

struct NamedMetric {
  std::string_view name;
  Metric (*make)();
};

const std::array kMetrics = {
    NamedMetric{"accuracy", [] { return Accuracy(); }},
    NamedMetric{"acc", [] { return Accuracy({.name = "acc"}); }},
    NamedMetric{"auc", [] { return AUC(); }},
    NamedMetric{"binary_accuracy", [] { return BinaryAccuracy(); }},
    NamedMetric{"binary_crossentropy", [] { return Metric(BinaryCrossentropy()); }},
    NamedMetric{"bce", [] { return Metric(BinaryCrossentropy({.name = "bce"})); }},
    NamedMetric{"binary_focal_crossentropy", [] { return Metric(BinaryFocalCrossentropy()); }},
    NamedMetric{"binary_io_u", [] { return BinaryIoU(); }},
    NamedMetric{"categorical_accuracy", [] { return CategoricalAccuracy(); }},
    NamedMetric{"categorical_crossentropy", [] { return Metric(CategoricalCrossentropy()); }},
    NamedMetric{"categorical_focal_crossentropy", [] { return Metric(CategoricalFocalCrossentropy()); }},
    NamedMetric{"categorical_hinge", [] { return Metric(CategoricalHinge()); }},
    NamedMetric{"concordance_correlation", [] { return ConcordanceCorrelation(); }},
    NamedMetric{"cosine_similarity", [] { return Metric(CosineSimilarity()); }},
    NamedMetric{"crossentropy", [] { return Crossentropy(); }},
    NamedMetric{"ce", [] { return Crossentropy({.name = "ce"}); }},
    NamedMetric{"f1_score", [] { return F1Score(); }},
    NamedMetric{"fbeta_score", [] { return FBetaScore(); }},
    NamedMetric{"false_negatives", [] { return FalseNegatives(); }},
    NamedMetric{"false_positives", [] { return FalsePositives(); }},
    NamedMetric{"hinge", [] { return Metric(Hinge()); }},
    NamedMetric{"huber", [] { return Metric(Huber({.name = "huber"})); }},
    NamedMetric{"kl_divergence", [] { return Metric(KLDivergence()); }},
    NamedMetric{"kld", [] { return Metric(KLDivergence({.name = "kld"})); }},
    NamedMetric{"kullback_leibler_divergence",
                [] { return Metric(KLDivergence({.name = "kullback_leibler_divergence"})); }},
    NamedMetric{"log_cosh_error", [] { return LogCoshError(); }},
    NamedMetric{"log_cosh", [] { return LogCoshError(); }},
    NamedMetric{"mean", [] { return Mean(); }},
    NamedMetric{"mean_absolute_error", [] { return Metric(MeanAbsoluteError()); }},
    NamedMetric{"mae", [] { return Metric(MeanAbsoluteError({.name = "mae"})); }},
    NamedMetric{"mean_absolute_percentage_error", [] { return Metric(MeanAbsolutePercentageError()); }},
    NamedMetric{"mape", [] { return Metric(MeanAbsolutePercentageError({.name = "mape"})); }},
    NamedMetric{"mean_squared_error", [] { return Metric(MeanSquaredError()); }},
    NamedMetric{"mse", [] { return Metric(MeanSquaredError({.name = "mse"})); }},
    NamedMetric{"mean_squared_logarithmic_error", [] { return Metric(MeanSquaredLogarithmicError()); }},
    NamedMetric{"msle", [] { return Metric(MeanSquaredLogarithmicError({.name = "msle"})); }},
    NamedMetric{"pearson_correlation", [] { return PearsonCorrelation(); }},
    NamedMetric{"poisson", [] { return Metric(Poisson()); }},
    NamedMetric{"precision", [] { return Precision(); }},
    NamedMetric{"r2_score", [] { return R2Score(); }},
    NamedMetric{"recall", [] { return Recall(); }},
    NamedMetric{"root_mean_squared_error", [] { return RootMeanSquaredError(); }},
    NamedMetric{"sparse_categorical_accuracy", [] { return SparseCategoricalAccuracy(); }},
    NamedMetric{"sparse_categorical_crossentropy", [] { return Metric(SparseCategoricalCrossentropy()); }},
    NamedMetric{"sparse_top_k_categorical_accuracy", [] { return SparseTopKCategoricalAccuracy(); }},
    NamedMetric{"squared_hinge", [] { return Metric(SquaredHinge()); }},
    NamedMetric{"sum", [] { return Sum(); }},
    NamedMetric{"top_k_categorical_accuracy", [] { return TopKCategoricalAccuracy(); }},
    NamedMetric{"true_negatives", [] { return TrueNegatives(); }},
    NamedMetric{"true_positives", [] { return TruePositives(); }},
};

}  // namespace

Metric::Metric(const char* name) : Metric(find_named(kMetrics, name, "metrics", "metric").make()) {}

}  // namespace cohort
