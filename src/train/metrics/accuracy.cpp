// Accuracies: shares of predictions that are right, and the crossentropy that shapes choose as they choose an accuracy.
#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/train/basic_metrics.h"
#include "ops/hits.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

namespace {

torch::Tensor sparse_hits(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction) {
  return prediction.argmax(-1).eq(fit_labels(speaker, y, prediction, -1));
}

torch::Tensor categorical_hits(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction) {
  return prediction.argmax(-1).eq(fit_target(speaker, y, prediction).argmax(-1));
}

torch::Tensor binary_hits(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction,
                          double threshold) {
  return prediction.gt(threshold).eq(fit_target(speaker, y, prediction).to(torch::kBool));
}

class SparseAccuracy : public MeanMetric, public TakesParts {
 public:
  explicit SparseAccuracy(const std::string& name)
      : SparseAccuracy(name, [speaker = "[metrics] " + name](const auto& y, const auto& prediction) {
          return sparse_hits(speaker, y, prediction);
        }) {}

  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    if (weight.defined() || !is_sparse(y, prediction)) return MeanMetric::update(state, y, prediction, weight);
    const torch::Tensor labels = fit_labels(speaker_, y, prediction, -1);
    const std::optional<int64_t> hits = count_hits(prediction, labels);
    if (!hits) return MeanMetric::update(state, y, prediction, weight);
    state.add(0, static_cast<double>(*hits));
    state.add(1, static_cast<double>(prediction.size(0)));
  }

 protected:
  SparseAccuracy(const std::string& name, Metric::Function values)
      : MeanMetric(name, Direction::kUp, std::move(values)), speaker_("[metrics] " + name) {}

  virtual bool is_sparse(const torch::Tensor& /*y*/, const torch::Tensor& /*prediction*/) const { return true; }

 private:
  std::string speaker_;
};

bool looks_sparse(const torch::Tensor& y, const torch::Tensor& prediction) {
  if (y.is_floating_point() || prediction.dim() < 2 || prediction.size(-1) < 2) return false;
  return y.dim() == prediction.dim() - 1 || (y.dim() == prediction.dim() && y.size(-1) == 1);
}

// The accuracy that the shapes suggest.
class ChosenAccuracy final : public SparseAccuracy {
 public:
  explicit ChosenAccuracy(const std::string& name)
      : SparseAccuracy(name, [speaker = "[metrics] " + name](const torch::Tensor& y, const torch::Tensor& prediction) {
          if (looks_sparse(y, prediction)) return sparse_hits(speaker, y, prediction);
          if (prediction.dim() > 1 && prediction.size(-1) > 1) return categorical_hits(speaker, y, prediction);
          return binary_hits(speaker, y, prediction, 0.5);
        }) {}

 protected:
  bool is_sparse(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    return looks_sparse(y, prediction);
  }
};

// A hit is what TensorFlow's in_top_k takes for one: fewer than k predictions are higher than the label's, which must
// be finite.
torch::Tensor top_k_hits(const torch::Tensor& labels, const torch::Tensor& prediction, int64_t k) {
  const torch::Tensor own = prediction.gather(-1, labels.unsqueeze(-1));
  const torch::Tensor higher = prediction.gt(own).sum(-1);
  return higher.lt(k).logical_and(at::isfinite(own.squeeze(-1)));
}

void check_k(const std::string& name, int64_t k) {
  if (k <= 0) fail<InvalidArgument>("[metrics] ", name, ": k must be positive, got ", k);
}

}  // namespace

Metric Accuracy(const AccuracyOptions& options) {
  return Metric(made_with<ChosenAccuracy>(options, options.name));
}

Metric EqualityAccuracy(const AccuracyOptions& options) {
  return Metric(made_with<MeanMetric>(std::pair("Accuracy", options), options.name, Direction::kUp,
                                      [speaker = "[metrics] " + options.name](const auto& y, const auto& prediction) {
                                        return prediction.eq(fit_target(speaker, y, prediction));
                                      }));
}

Metric Crossentropy(const CrossentropyOptions& options) {
  return Metric(std::make_shared<MeanMetric>(options.name, Direction::kDown,
                                             [](const torch::Tensor& y, const torch::Tensor& prediction) {
                                               if (looks_sparse(y, prediction))
                                                 return SparseCategoricalCrossentropy().per_example(y, prediction);
                                               if (prediction.dim() > 1 && prediction.size(-1) > 1) {
                                                 return CategoricalCrossentropy().per_example(y, prediction);
                                               }
                                               return BinaryCrossentropy().per_example(y, prediction);
                                             }));
}

Metric SparseCategoricalAccuracy(const SparseCategoricalAccuracyOptions& options) {
  return Metric(made_with<SparseAccuracy>(options, options.name));
}

Metric CategoricalAccuracy(const CategoricalAccuracyOptions& options) {
  return Metric(made_with<MeanMetric>(options, options.name, Direction::kUp,
                                      [speaker = "[metrics] " + options.name](const auto& y, const auto& prediction) {
                                        return categorical_hits(speaker, y, prediction);
                                      }));
}

Metric BinaryAccuracy(const BinaryAccuracyOptions& options) {
  return Metric(made_with<MeanMetric>(
      options, options.name, Direction::kUp,
      [speaker = "[metrics] " + options.name, threshold = options.threshold](const auto& y, const auto& prediction) {
        return binary_hits(speaker, y, prediction, threshold);
      }));
}

Metric SparseTopKCategoricalAccuracy(const TopKAccuracyOptions& options) {
  const std::string name = options.name.empty() ? "sparse_top_k_categorical_accuracy" : options.name;
  check_k(name, options.k);
  return Metric(
      made_with<MeanMetric>(options, name, Direction::kUp,
                            [speaker = "[metrics] " + name, k = options.k](const auto& y, const auto& prediction) {
                              return top_k_hits(fit_labels(speaker, y, prediction, -1), prediction, k);
                            }));
}

Metric TopKCategoricalAccuracy(const TopKAccuracyOptions& options) {
  const std::string name = options.name.empty() ? "top_k_categorical_accuracy" : options.name;
  check_k(name, options.k);
  return Metric(
      made_with<MeanMetric>(std::pair("TopKCategoricalAccuracy", options), name, Direction::kUp,
                            [speaker = "[metrics] " + name, k = options.k](const auto& y, const auto& prediction) {
                              return top_k_hits(fit_target(speaker, y, prediction).argmax(-1), prediction, k);
                            }));
}

}  // namespace cohort
