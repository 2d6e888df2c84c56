#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <limits>

#include "base/fail.h"
#include "cohort/train/losses.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

// Probabilities are kept this far from 0 and 1, as Keras does.
constexpr double kEpsilon = 1e-7;

// No label is ignored: a negative one is an error as any other that is out of range. (LibTorch's symbolic integers do
// not take the smallest of 64 bits.)
constexpr int64_t kIgnoreNothing = std::numeric_limits<int32_t>::min();

torch::Tensor clipped(const torch::Tensor& probabilities) {
  return at::clamp(probabilities, kEpsilon, 1.0 - kEpsilon);
}

void check_smoothing(const std::string& name, double smoothing) {
  if (smoothing >= 0.0 && smoothing <= 1.0) return;
  fail<InvalidArgument>("[losses] ", name, ": label_smoothing must be in [0, 1], got ", smoothing);
}

class SparseCategorical final : public LossRule {
 public:
  explicit SparseCategorical(SparseCategoricalCrossentropyOptions options)
      : options_(std::move(options)), speaker_("[losses] " + options_.name) {}

  const std::string& name() const override { return options_.name; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    return entropy(y, prediction, at::Reduction::None);
  }
  torch::Tensor sum(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    const torch::Tensor total = entropy(y, prediction, at::Reduction::Sum);
    return prediction.dim() == 2 ? total : total / static_cast<double>(std::max<int64_t>(1, values_an_example(y)));
  }

 private:
  torch::Tensor entropy(const torch::Tensor& y, const torch::Tensor& prediction,
                        at::Reduction::Reduction reduction) const {
    const torch::Tensor labels = fit_labels(speaker_, y, prediction, options_.axis);
    torch::Tensor logits = options_.from_logits ? prediction : clipped(prediction).log();
    if (logits.dim() > 2 && options_.axis != 1) logits = logits.movedim(options_.axis, 1);
    try {
      return at::nll_loss_nd(at::log_softmax(logits, 1), labels, {}, reduction, kIgnoreNothing);
    } catch (const c10::IndexError&) {
      fail<InvalidArgument>(speaker_, ": labels from ", labels.min().item<int64_t>(), " to ",
                            labels.max().item<int64_t>(), ", but the prediction has ", logits.size(1),
                            " classes: wanted labels from 0 to ", logits.size(1) - 1);
    }
  }

  SparseCategoricalCrossentropyOptions options_;
  std::string speaker_;
};

class Categorical final : public LossRule {
 public:
  explicit Categorical(CategoricalCrossentropyOptions options)
      : options_(std::move(options)), speaker_("[losses] " + options_.name) {
    check_smoothing(options_.name, options_.label_smoothing);
  }

  const std::string& name() const override { return options_.name; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    torch::Tensor target = fit_target(speaker_, y, prediction);
    const int64_t axis = options_.axis;
    if (prediction.dim() < 2 || axis < -prediction.dim() || axis >= prediction.dim()) {
      fail<InvalidArgument>(speaker_, ": the prediction has shape ", prediction.sizes(),
                            ", wanted [batch, ..., classes] with the classes in dimension ", axis);
    }
    const double smoothing = options_.label_smoothing;
    if (smoothing > 0.0) target = target * (1.0 - smoothing) + smoothing / static_cast<double>(prediction.size(axis));
    const torch::Tensor logs = options_.from_logits
                                   ? at::log_softmax(prediction, axis)
                                   : clipped(prediction / prediction.sum(axis, /*keepdim=*/true)).log();
    return -(target * logs).sum(axis);
  }

 private:
  CategoricalCrossentropyOptions options_;
  std::string speaker_;
};

class Binary final : public LossRule {
 public:
  explicit Binary(BinaryCrossentropyOptions options)
      : options_(std::move(options)), speaker_("[losses] " + options_.name) {
    check_smoothing(options_.name, options_.label_smoothing);
  }

  const std::string& name() const override { return options_.name; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    return entropy(y, prediction, at::Reduction::None);
  }
  torch::Tensor sum(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    const torch::Tensor total = entropy(y, prediction, at::Reduction::Sum);
    const int64_t count = values_an_example(prediction);
    return count == 1 ? total : total / static_cast<double>(count);
  }

 private:
  torch::Tensor entropy(const torch::Tensor& y, const torch::Tensor& prediction,
                        at::Reduction::Reduction reduction) const {
    torch::Tensor target = fit_target(speaker_, y, prediction);
    const double smoothing = options_.label_smoothing;
    if (smoothing > 0.0) target = target * (1.0 - smoothing) + 0.5 * smoothing;
    if (options_.from_logits) return at::binary_cross_entropy_with_logits(prediction, target, {}, {}, reduction);
    return at::binary_cross_entropy(clipped(prediction), target, {}, reduction);
  }

  BinaryCrossentropyOptions options_;
  std::string speaker_;
};

}  // namespace

Loss SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options) {
  return Loss(std::make_shared<SparseCategorical>(options));
}

Loss CategoricalCrossentropy(const CategoricalCrossentropyOptions& options) {
  return Loss(std::make_shared<Categorical>(options));
}

Loss BinaryCrossentropy(const BinaryCrossentropyOptions& options) {
  return Loss(std::make_shared<Binary>(options));
}

}  // namespace cohort
