// The metrics that compile("name") knows: Keras' names of classes and functions, and their short forms.
#include <array>

#include "base/named.h"
#include "cohort/train/basic_metrics.h"

namespace cohort {

namespace {

const std::array kMetrics = {
    Named<Metric>{"accuracy", [] { return Accuracy(); }},
    Named<Metric>{"acc", [] { return Accuracy({.name = "acc"}); }},
    Named<Metric>{"binary_accuracy", [] { return BinaryAccuracy(); }},
    Named<Metric>{"binary_crossentropy", [] { return Metric(BinaryCrossentropy()); }},
    Named<Metric>{"bce", [] { return Metric(BinaryCrossentropy({.name = "bce"})); }},
    Named<Metric>{"categorical_accuracy", [] { return CategoricalAccuracy(); }},
    Named<Metric>{"categorical_crossentropy", [] { return Metric(CategoricalCrossentropy()); }},
    Named<Metric>{"crossentropy", [] { return Crossentropy(); }},
    Named<Metric>{"ce", [] { return Crossentropy({.name = "ce"}); }},
    Named<Metric>{"huber", [] { return Metric(Huber({.name = "huber"})); }},
    Named<Metric>{"mean", [] { return Mean(); }},
    Named<Metric>{"mean_absolute_error", [] { return Metric(MeanAbsoluteError()); }},
    Named<Metric>{"mae", [] { return Metric(MeanAbsoluteError({.name = "mae"})); }},
    Named<Metric>{"mean_squared_error", [] { return Metric(MeanSquaredError()); }},
    Named<Metric>{"mse", [] { return Metric(MeanSquaredError({.name = "mse"})); }},
    Named<Metric>{"sparse_categorical_accuracy", [] { return SparseCategoricalAccuracy(); }},
    Named<Metric>{"sparse_categorical_crossentropy", [] { return Metric(SparseCategoricalCrossentropy()); }},
    Named<Metric>{"sparse_top_k_categorical_accuracy", [] { return SparseTopKCategoricalAccuracy(); }},
    Named<Metric>{"sum", [] { return Sum(); }},
    Named<Metric>{"top_k_categorical_accuracy", [] { return TopKCategoricalAccuracy(); }},
};

}  // namespace

Metric::Metric(const char* name) : Metric(find_named<Metric>(kMetrics, name, "metrics", "metric", "metrics").make()) {}

}  // namespace cohort
