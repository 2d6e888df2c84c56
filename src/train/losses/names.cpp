// The losses that compile("name") knows: Keras' names of classes and functions, and their short forms.
#include <array>

#include "base/named.h"
#include "cohort/train/losses.h"

namespace cohort {

namespace {

struct NamedLoss {
  std::string_view name;
  Loss (*make)();
};

const std::array kLosses = {
    NamedLoss{"binary_crossentropy", [] { return BinaryCrossentropy(); }},
    NamedLoss{"bce", [] { return BinaryCrossentropy(); }},
    NamedLoss{"binary_focal_crossentropy", [] { return BinaryFocalCrossentropy(); }},
    NamedLoss{"categorical_crossentropy", [] { return CategoricalCrossentropy(); }},
    NamedLoss{"categorical_focal_crossentropy", [] { return CategoricalFocalCrossentropy(); }},
    NamedLoss{"categorical_generalized_cross_entropy", [] { return CategoricalGeneralizedCrossEntropy(); }},
    NamedLoss{"categorical_hinge", [] { return CategoricalHinge(); }},
    NamedLoss{"circle", [] { return Circle(); }},
    NamedLoss{"cosine_similarity", [] { return CosineSimilarity(); }},
    NamedLoss{"ctc", [] { return CTC(); }},
    NamedLoss{"dice", [] { return Dice(); }},
    NamedLoss{"hinge", [] { return Hinge(); }},
    NamedLoss{"huber", [] { return Huber(); }},
    NamedLoss{"huber_loss", [] { return Huber(); }},
    NamedLoss{"kl_divergence", [] { return KLDivergence(); }},
    NamedLoss{"kld", [] { return KLDivergence(); }},
    NamedLoss{"kullback_leibler_divergence", [] { return KLDivergence(); }},
    NamedLoss{"log_cosh", [] { return LogCosh(); }},
    NamedLoss{"mean_absolute_error", [] { return MeanAbsoluteError(); }},
    NamedLoss{"mae", [] { return MeanAbsoluteError(); }},
    NamedLoss{"mean_absolute_percentage_error", [] { return MeanAbsolutePercentageError(); }},
    NamedLoss{"mape", [] { return MeanAbsolutePercentageError(); }},
    NamedLoss{"mean_squared_error", [] { return MeanSquaredError(); }},
    NamedLoss{"mse", [] { return MeanSquaredError(); }},
    NamedLoss{"mean_squared_logarithmic_error", [] { return MeanSquaredLogarithmicError(); }},
    NamedLoss{"msle", [] { return MeanSquaredLogarithmicError(); }},
    NamedLoss{"poisson", [] { return Poisson(); }},
    NamedLoss{"sparse_categorical_crossentropy", [] { return SparseCategoricalCrossentropy(); }},
    NamedLoss{"squared_hinge", [] { return SquaredHinge(); }},
    NamedLoss{"tversky", [] { return Tversky(); }},
};

}  // namespace

Loss::Loss(const char* name) : Loss(find_named(kLosses, name, "losses", "loss").make()) {}

}  // namespace cohort
