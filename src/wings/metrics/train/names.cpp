#include "wings/metrics/train/names.h"

#include "cohort/train/more_losses.h"
#include "cohort/train/more_metrics.h"

namespace cohort {

std::vector<Named<Loss>> named_losses() {
  return {
      Named<Loss>{"binary_focal_crossentropy", [] { return BinaryFocalCrossentropy(); }, "metrics"},
      Named<Loss>{"categorical_focal_crossentropy", [] { return CategoricalFocalCrossentropy(); }, "metrics"},
      Named<Loss>{"categorical_generalized_cross_entropy", [] { return CategoricalGeneralizedCrossEntropy(); },
                  "metrics"},
      Named<Loss>{"categorical_hinge", [] { return CategoricalHinge(); }, "metrics"},
      Named<Loss>{"circle", [] { return Circle(); }, "metrics"},
      Named<Loss>{"cosine_similarity", [] { return CosineSimilarity(); }, "metrics"},
      Named<Loss>{"ctc", [] { return CTC(); }, "metrics"},
      Named<Loss>{"dice", [] { return Dice(); }, "metrics"},
      Named<Loss>{"hinge", [] { return Hinge(); }, "metrics"},
      Named<Loss>{"kl_divergence", [] { return KLDivergence(); }, "metrics"},
      Named<Loss>{"kld", [] { return KLDivergence(); }, "metrics"},
      Named<Loss>{"kullback_leibler_divergence", [] { return KLDivergence(); }, "metrics"},
      Named<Loss>{"log_cosh", [] { return LogCosh(); }, "metrics"},
      Named<Loss>{"mean_absolute_percentage_error", [] { return MeanAbsolutePercentageError(); }, "metrics"},
      Named<Loss>{"mape", [] { return MeanAbsolutePercentageError(); }, "metrics"},
      Named<Loss>{"mean_squared_logarithmic_error", [] { return MeanSquaredLogarithmicError(); }, "metrics"},
      Named<Loss>{"msle", [] { return MeanSquaredLogarithmicError(); }, "metrics"},
      Named<Loss>{"poisson", [] { return Poisson(); }, "metrics"},
      Named<Loss>{"squared_hinge", [] { return SquaredHinge(); }, "metrics"},
      Named<Loss>{"tversky", [] { return Tversky(); }, "metrics"},
  };
}

std::vector<Named<Metric>> named_metrics() {
  return {
      Named<Metric>{"auc", [] { return AUC(); }, "metrics"},
      Named<Metric>{"binary_focal_crossentropy", [] { return Metric(BinaryFocalCrossentropy()); }, "metrics"},
      Named<Metric>{"categorical_focal_crossentropy", [] { return Metric(CategoricalFocalCrossentropy()); }, "metrics"},
      Named<Metric>{"categorical_hinge", [] { return Metric(CategoricalHinge()); }, "metrics"},
      Named<Metric>{"concordance_correlation", [] { return ConcordanceCorrelation(); }, "metrics"},
      Named<Metric>{"cosine_similarity", [] { return Metric(CosineSimilarity()); }, "metrics"},
      Named<Metric>{"f1_score", [] { return F1Score(); }, "metrics"},
      Named<Metric>{"fbeta_score", [] { return FBetaScore(); }, "metrics"},
      Named<Metric>{"false_negatives", [] { return FalseNegatives(); }, "metrics"},
      Named<Metric>{"false_positives", [] { return FalsePositives(); }, "metrics"},
      Named<Metric>{"hinge", [] { return Metric(Hinge()); }, "metrics"},
      Named<Metric>{"kl_divergence", [] { return Metric(KLDivergence()); }, "metrics"},
      Named<Metric>{"kld", [] { return Metric(KLDivergence({.name = "kld"})); }, "metrics"},
      Named<Metric>{"kullback_leibler_divergence",
                    [] { return Metric(KLDivergence({.name = "kullback_leibler_divergence"})); }, "metrics"},
      Named<Metric>{"log_cosh_error", [] { return LogCoshError(); }, "metrics"},
      Named<Metric>{"log_cosh", [] { return LogCoshError(); }, "metrics"},
      Named<Metric>{"mean_absolute_percentage_error", [] { return Metric(MeanAbsolutePercentageError()); }, "metrics"},
      Named<Metric>{"mape", [] { return Metric(MeanAbsolutePercentageError({.name = "mape"})); }, "metrics"},
      Named<Metric>{"mean_squared_logarithmic_error", [] { return Metric(MeanSquaredLogarithmicError()); }, "metrics"},
      Named<Metric>{"msle", [] { return Metric(MeanSquaredLogarithmicError({.name = "msle"})); }, "metrics"},
      Named<Metric>{"pearson_correlation", [] { return PearsonCorrelation(); }, "metrics"},
      Named<Metric>{"poisson", [] { return Metric(Poisson()); }, "metrics"},
      Named<Metric>{"precision", [] { return Precision(); }, "metrics"},
      Named<Metric>{"r2_score", [] { return R2Score(); }, "metrics"},
      Named<Metric>{"recall", [] { return Recall(); }, "metrics"},
      Named<Metric>{"root_mean_squared_error", [] { return RootMeanSquaredError(); }, "metrics"},
      Named<Metric>{"squared_hinge", [] { return Metric(SquaredHinge()); }, "metrics"},
      Named<Metric>{"true_negatives", [] { return TrueNegatives(); }, "metrics"},
      Named<Metric>{"true_positives", [] { return TruePositives(); }, "metrics"},
  };
}

}  // namespace cohort
