// Cross-entropies of classes, by labels and by probabilities, and of two classes. Where nothing is averaged but the
// batch, LibTorch's fused operations sum them up.
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <limits>
#include <optional>
#include <vector>

#include "base/fail.h"
#include "cohort/train/basic_losses.h"
#include "ops/entropy_rows.h"
#include "strategy/divided.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

// No label is ignored by LibTorch: a negative one is an error as any other that is out of range. (LibTorch's symbolic
// integers do not take the smallest of 64 bits.)
constexpr int64_t kIgnoreNothing = std::numeric_limits<int32_t>::min();

// Logits with the classes in dimension 1, and their labels.
struct Classified {
  torch::Tensor logits;
  torch::Tensor labels;
  std::optional<std::vector<int64_t>> shape = std::nullopt;  // the labels', of which logits and labels have all in one
};

Classified classified(const SparseCategoricalCrossentropyOptions& options, const torch::Tensor& labels,
                      const torch::Tensor& prediction) {
  torch::Tensor logits = options.from_logits ? prediction : clipped_probabilities(prediction).log();
  if (logits.dim() == 2) return {.logits = logits, .labels = labels};
  // Classes that lie last are the rows of a matrix: along another dimension all of this takes more than twice as long.
  const bool last = options.axis == -1 || options.axis == logits.dim() - 1;
  const DividedTensor* const divided = DividedTensor::of(logits);
  const bool contiguous = divided == nullptr ? logits.is_contiguous() : divided->cut_dims().front() == logits.dim() - 1;
  if (last && contiguous) {
    return {.logits = logits.flatten(0, -2), .labels = labels.flatten(), .shape = labels.sizes().vec()};
  }
  return {.logits = options.axis == 1 ? logits : logits.movedim(options.axis, 1), .labels = labels};
}

// Calls fn, and says which labels are none of the classes where that finds such.
template <typename Fn>
auto with_labels(const std::string& speaker, const Classified& all, const Fn& fn) {
  try {
    return fn();
  } catch (const c10::IndexError&) {
    const int64_t classes = all.logits.size(1);
    fail<InvalidArgument>(speaker, ": labels from ", all.labels.min().item<int64_t>(), " to ",
                          all.labels.max().item<int64_t>(), ", but the prediction has ", classes,
                          " classes: wanted labels from 0 to ", classes - 1);
  }
}

torch::Tensor sparse_entropy(const std::string& speaker, const Classified& all, at::Reduction::Reduction reduction) {
  return with_labels(speaker, all, [&] {
    const bool each = reduction == at::Reduction::None;
    torch::Tensor entropy = each ? entropy_of_rows(all.logits, all.labels) : torch::Tensor();
    if (!entropy.defined()) {
      const torch::Tensor logs = at::log_softmax(all.logits, 1);
      if (!all.shape) return at::nll_loss_nd(logs, all.labels, {}, reduction, kIgnoreNothing);
      entropy = at::nll_loss(logs, all.labels, {}, reduction, kIgnoreNothing);
    }
    return each && all.shape ? entropy.view(*all.shape) : entropy;
  });
}

class SparseCategorical final : public LossRule, public TakesParts {
 public:
  explicit SparseCategorical(SparseCategoricalCrossentropyOptions options)
      : options_(std::move(options)), speaker_("[losses] " + options_.name) {}

  const std::string& name() const override { return options_.name; }
  bool takes_parts() const override { return options_.from_logits; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    return sparse_entropy(speaker_, classify(y, prediction), at::Reduction::None);
  }
  torch::Tensor sum(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    return divided_sum(y, prediction, 1.0).total;
  }
  LossShare divided_sum(const torch::Tensor& y, const torch::Tensor& prediction, double divisor) const override {
    const Classified all = classify(y, prediction);
    const double values = prediction.dim() == 2 ? 1.0 : static_cast<double>(std::max<int64_t>(1, values_an_example(y)));
    const EntropySums own = with_labels(
        speaker_, all, [&] { return entropy_of_all_rows(all.logits, all.labels, values * divisor, values); });
    if (own.value.defined()) return {.value = own.value, .total = own.total};
    const torch::Tensor sum = sparse_entropy(speaker_, all, at::Reduction::Sum);
    const torch::Tensor total = values == 1.0 ? sum : sum / values;
    return {.value = divisor == 1.0 ? total : total / divisor, .total = total};
  }

 private:
  Classified classify(const torch::Tensor& y, const torch::Tensor& prediction) const {
    return classified(options_, fit_labels(speaker_, y, prediction, options_.axis), prediction);
  }

  SparseCategoricalCrossentropyOptions options_;
  std::string speaker_;
};

// The same without the labels of one class, which stands for places that have none.
class SparseCategoricalIgnoring final : public BatchLossRule, public TakesParts {
 public:
  explicit SparseCategoricalIgnoring(SparseCategoricalCrossentropyOptions options)
      : options_(std::move(options)), speaker_("[losses] " + options_.name) {}

  const std::string& name() const override { return options_.name; }
  bool takes_parts() const override { return options_.from_logits; }
  bool needs_whole_batch() const override { return false; }
  Values values_within(const WholeBatch& /*batch*/, const torch::Tensor& y,
                       const torch::Tensor& prediction) const override {
    const torch::Tensor labels = fit_labels(speaker_, y, prediction, options_.axis);
    const torch::Tensor counted = labels.ne(*options_.ignore_class);
    const torch::Tensor each =
        sparse_entropy(speaker_, classified(options_, labels * counted, prediction), at::Reduction::None);
    return {.each = each.masked_fill(counted.logical_not(), 0.0), .counted = counted};
  }

 private:
  SparseCategoricalCrossentropyOptions options_;
  std::string speaker_;
};

class Categorical final : public LossRule, public TakesParts {
 public:
  explicit Categorical(CategoricalCrossentropyOptions options)
      : options_(std::move(options)), speaker_("[losses] " + options_.name) {
    check_smoothing(options_.name, options_.label_smoothing);
  }

  const std::string& name() const override { return options_.name; }
  bool takes_parts() const override { return options_.from_logits; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    const int64_t axis = options_.axis;
    const torch::Tensor target = class_target(speaker_, y, prediction, options_.label_smoothing, axis);
    const torch::Tensor logs = options_.from_logits
                                   ? at::log_softmax(prediction, axis)
                                   : clipped_probabilities(prediction / prediction.sum(axis, /*keepdim=*/true)).log();
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
    check_mean_axis(options_.name, options_.axis);
  }

  const std::string& name() const override { return options_.name; }
  bool averages_last() const override { return options_.axis == -1; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    return mean_over(speaker_, entropy(y, prediction, at::Reduction::None), options_.axis);
  }
  torch::Tensor sum(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    const torch::Tensor total = entropy(y, prediction, at::Reduction::Sum);
    const int64_t count = values_an_example(prediction);
    return count == 1 ? total : total / static_cast<double>(count);
  }

 private:
  torch::Tensor entropy(const torch::Tensor& y, const torch::Tensor& prediction,
                        at::Reduction::Reduction reduction) const {
    const torch::Tensor target = binary_target(speaker_, y, prediction, options_.label_smoothing);
    if (options_.from_logits) return at::binary_cross_entropy_with_logits(prediction, target, {}, {}, reduction);
    return at::binary_cross_entropy(clipped_probabilities(prediction), target, {}, reduction);
  }

  BinaryCrossentropyOptions options_;
  std::string speaker_;
};

// The probability p of the true class to a power: (1 - p^q) / q.

}  // namespace

Loss SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options) {
  if (options.ignore_class) return Loss(made_with<SparseCategoricalIgnoring>(options, options), options.reduction);
  return Loss(made_with<SparseCategorical>(options, options), options.reduction);
}

Loss CategoricalCrossentropy(const CategoricalCrossentropyOptions& options) {
  return Loss(made_with<Categorical>(options, options), options.reduction);
}

Loss BinaryCrossentropy(const BinaryCrossentropyOptions& options) {
  return Loss(made_with<Binary>(options, options), options.reduction);
}

}  // namespace cohort
