// The cross-entropy for labels that are partly wrong.
#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/train/more_losses.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

class Generalized final : public LossRule {
 public:
  explicit Generalized(CategoricalGeneralizedCrossEntropyOptions options)
      : options_(std::move(options)), speaker_("[losses] " + options_.name) {
    if (options_.q > 0.0 && options_.q < 1.0) return;
    fail<InvalidArgument>(speaker_, ": q must be between 0 and 1, got ", options_.q);
  }

  const std::string& name() const override { return options_.name; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    const torch::Tensor labels = fit_labels(speaker_, y, prediction, -1);
    const torch::Tensor p = prediction.gather(-1, labels.unsqueeze(-1)).squeeze(-1);
    return (1.0 - p.pow(options_.q)) / options_.q;
  }

 private:
  CategoricalGeneralizedCrossEntropyOptions options_;
  std::string speaker_;
};

}  // namespace

Loss CategoricalGeneralizedCrossEntropy(const CategoricalGeneralizedCrossEntropyOptions& options) {
  return Loss(std::make_shared<Generalized>(options), options.reduction);
}

}  // namespace cohort
