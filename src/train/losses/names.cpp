// The losses that compile("name") knows: Keras' names of classes and functions, and their short forms.
#include <array>

#include "base/named.h"
#include "cohort/train/basic_losses.h"

namespace cohort {

namespace {

const std::array kLosses = {
    Named<Loss>{"binary_crossentropy", [] { return BinaryCrossentropy(); }},
    Named<Loss>{"bce", [] { return BinaryCrossentropy(); }},
    Named<Loss>{"categorical_crossentropy", [] { return CategoricalCrossentropy(); }},
    Named<Loss>{"huber", [] { return Huber(); }},
    Named<Loss>{"huber_loss", [] { return Huber(); }},
    Named<Loss>{"mean_absolute_error", [] { return MeanAbsoluteError(); }},
    Named<Loss>{"mae", [] { return MeanAbsoluteError(); }},
    Named<Loss>{"mean_squared_error", [] { return MeanSquaredError(); }},
    Named<Loss>{"mse", [] { return MeanSquaredError(); }},
    Named<Loss>{"sparse_categorical_crossentropy", [] { return SparseCategoricalCrossentropy(); }},
};

}  // namespace

Loss::Loss(const char* name) : Loss(find_named<Loss>(kLosses, name, "losses", "loss", "metrics").make()) {}

}  // namespace cohort
