// The circle loss compares each example with all others of the global batch: replicas gather each other's embeddings.
#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/train/more_losses.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

class CircleRule final : public BatchLossRule {
 public:
  explicit CircleRule(CircleOptions options) : options_(std::move(options)), speaker_("[losses] " + options_.name) {}

  const std::string& name() const override { return options_.name; }
  bool needs_whole_batch() const override { return true; }
  Values values_within(const WholeBatch& batch, const torch::Tensor& y,
                       const torch::Tensor& prediction) const override {
    if (prediction.dim() != 2) {
      fail<InvalidArgument>(speaker_, ": the prediction has shape ", prediction.sizes(), ", wanted [batch, size]");
    }
    const torch::Tensor labels = fit_labels(speaker_, y, prediction, -1);
    const torch::Tensor others = batch.rows(prediction), other_labels = batch.rows(labels);
    const torch::Tensor distance = (1.0 - prediction.matmul(others.t())).clamp_min(0.0);
    const torch::Tensor same = labels.unsqueeze(1).eq(other_labels.unsqueeze(0));
    const torch::Tensor near = options_.remove_diagonal ? same.logical_and(itself(batch, labels).logical_not()) : same;
    const double margin = options_.margin;
    const torch::Tensor pull = -options_.gamma * (margin + distance).clamp_min(0.0) * (margin - distance);
    const torch::Tensor push = options_.gamma * (1.0 + margin - distance).clamp_min(0.0) * (1.0 - margin - distance);
    const torch::Tensor each = at::softplus(log_sum(pull, near) + log_sum(push, same.logical_not()));
    return {.each = each, .counted = each.detach().gt(0)};
  }

 private:
  // Returns where a row of this part meets itself among the rows of the batch.
  static torch::Tensor itself(const WholeBatch& batch, const torch::Tensor& labels) {
    constexpr int64_t kMostRows = int64_t{1} << 32;
    const torch::Tensor mine = at::arange(labels.size(0), labels.options()) + batch.part() * kMostRows;
    return mine.unsqueeze(1).eq(batch.rows(mine).unsqueeze(0));
  }

  // Returns the logarithm of the sum of the exponentials of those that are kept. If none is kept the result is finite,
  // so that its gradient is, too, and so small that the loss is 0.
  static torch::Tensor log_sum(const torch::Tensor& values, const torch::Tensor& kept) {
    return at::logsumexp(values.masked_fill(kept.logical_not(), -1e30), {1});
  }

  CircleOptions options_;
  std::string speaker_;
};

}  // namespace

Loss Circle(const CircleOptions& options) {
  return Loss(std::make_shared<CircleRule>(options), options.reduction);
}

}  // namespace cohort
