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
    NamedMetric{"categorical_accuracy", [] { return CategoricalAccuracy(); }},
    NamedMetric{"categorical_crossentropy", [] { return Metric(CategoricalCrossentropy()); }},
    NamedMetric{"mae", [] { return Metric(MeanAbsoluteError({.name = "mae"})); }},
    NamedMetric{"mean_absolute_error", [] { return Metric(MeanAbsoluteError()); }},
    NamedMetric{"mean_squared_error", [] { return Metric(MeanSquaredError()); }},
    NamedMetric{"mse", [] { return Metric(MeanSquaredError({.name = "mse"})); }},
    NamedMetric{"precision", [] { return Precision(); }},
    NamedMetric{"recall", [] { return Recall(); }},
    NamedMetric{"root_mean_squared_error", [] { return RootMeanSquaredError(); }},
    NamedMetric{"sparse_categorical_accuracy", [] { return SparseCategoricalAccuracy(); }},
    NamedMetric{"sparse_categorical_crossentropy", [] { return Metric(SparseCategoricalCrossentropy()); }},
    NamedMetric{"sparse_top_k_categorical_accuracy", [] { return SparseTopKCategoricalAccuracy(); }},
    NamedMetric{"top_k_categorical_accuracy", [] { return TopKCategoricalAccuracy(); }},
};

}  // namespace

Metric::Metric(const char* name) : Metric(find_named(kMetrics, name, "metrics", "metric").make()) {}

}  // namespace cohort
