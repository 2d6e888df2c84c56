// Totals are on the CPU when a result is computed, and are read by a pointer.
#include "wings/metrics/train/metrics/confusion.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/fail.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

// Predictions that are not among the k highest of the last dimension become lower than any threshold.
torch::Tensor only_highest(const std::string& speaker, const torch::Tensor& prediction, int64_t k) {
  if (prediction.dim() < 2 || k > prediction.size(-1)) {
    fail<InvalidArgument>(speaker, ": top_k is ", k, ", but the prediction has shape ", prediction.sizes());
  }
  const torch::Tensor index = std::get<1>(prediction.topk(k, -1));
  const torch::Tensor dropped = at::ones_like(prediction, torch::kBool).scatter(-1, index, false);
  return prediction.masked_fill(dropped, -std::numeric_limits<double>::infinity());
}

}  // namespace

std::vector<double> even_thresholds(int64_t count) {
  std::vector<double> thresholds;
  for (int64_t i = 0; i < count; ++i) {
    thresholds.push_back(static_cast<double>(i) / static_cast<double>(std::max<int64_t>(1, count - 1)));
  }
  return thresholds;
}

bool are_even(const std::vector<double>& thresholds) {
  if (thresholds.size() < 3) return false;
  const std::vector<double> even = even_thresholds(static_cast<int64_t>(thresholds.size()));
  for (std::size_t i = 0; i < even.size(); ++i) {
    if (std::abs(thresholds[i] - even[i]) > kKerasEpsilon) return false;
  }
  return true;
}

ConfusionCounts::ConfusionCounts(Options options) : options_(std::move(options)) {
  if (options_.thresholds.empty()) fail<InvalidArgument>(options_.speaker, ": wanted at least one threshold");
  if (options_.top_k && *options_.top_k <= 0) {
    fail<InvalidArgument>(options_.speaker, ": top_k must be positive, got ", *options_.top_k);
  }
  order_.resize(options_.thresholds.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::sort(order_.begin(), order_.end(),
            [this](std::size_t a, std::size_t b) { return options_.thresholds[a] < options_.thresholds[b]; });
  for (const std::size_t index : order_) ascending_.push_back(options_.thresholds[index]);
}

// Returns how many thresholds each prediction is above.
torch::Tensor ConfusionCounts::buckets_of(const torch::Tensor& prediction) const {
  torch::Tensor p = prediction.is_floating_point() ? prediction : prediction.to(torch::kFloat);
  if (p.scalar_type() == torch::kHalf || p.scalar_type() == torch::kBFloat16) p = p.to(torch::kFloat);
  const double lowest = -std::numeric_limits<double>::infinity();
  if (options_.evenly) {
    const auto steps = static_cast<double>(ascending_.size() - 1);
    // A prediction of 0 is above a threshold that is a little below it.
    const double least = ascending_.front() < 0.0 ? 1.0 : 0.0;
    return at::ceil(at::nan_to_num(p, 0.0).clamp(0.0, 1.0) * steps).clamp_min(least).to(torch::kLong);
  }
  p = at::nan_to_num(p, lowest, std::numeric_limits<double>::infinity(), lowest).contiguous();
  const torch::Tensor limits = torch::tensor(ascending_, torch::kDouble).to(p.options());
  return at::bucketize(p, limits);
}

torch::Tensor ConfusionCounts::selected(const torch::Tensor& values) const {
  if (!options_.class_id) return values;
  const int64_t id = *options_.class_id;
  if (id < 0 || values.dim() < 2 || id >= values.size(-1)) {
    fail<InvalidArgument>(options_.speaker, ": class_id ", id, " of a prediction of shape ", values.sizes());
  }
  return values.select(-1, id);
}

void ConfusionCounts::update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
                             const torch::Tensor& weight) const {
  const std::string& speaker = options_.speaker;
  const torch::Tensor target = selected(fit_target(speaker, y, prediction)).to(torch::kBool);
  torch::Tensor p = prediction;
  if (options_.top_k) p = only_highest(speaker, p, *options_.top_k);
  p = selected(p);
  if (options_.multi_label && p.dim() != 2) {
    fail<InvalidArgument>(speaker, ": the prediction has shape ", p.sizes(), ", wanted [batch, labels]");
  }
  const int64_t labels = options_.multi_label ? p.size(1) : 1;
  if (options_.multi_label) state.require_size(state_size(labels));
  if (p.numel() == 0) return;
  const auto doubles = p.options().dtype(torch::kDouble);
  torch::Tensor weights = weight.defined() ? fit_weight(speaker, weight, at::empty_like(p, doubles)).to(torch::kDouble)
                                           : torch::ones({}, doubles);
  if (!options_.label_weights.empty()) {
    if (static_cast<int64_t>(options_.label_weights.size()) != p.size(-1)) {
      fail<InvalidArgument>(speaker, ": there are ", options_.label_weights.size(),
                            " label_weights, but the prediction has shape ", p.sizes());
    }
    weights = weights * torch::tensor(options_.label_weights, torch::kDouble).to(p.device());
  }
  torch::Tensor index = buckets_of(p) + target.logical_not().to(torch::kLong) * buckets();
  if (labels > 1) index = index + at::arange(labels, index.options()) * (2 * buckets());
  torch::Tensor sums = torch::zeros({state_size(labels)}, doubles);
  sums.index_add_(0, index.reshape({-1}), weights.expand_as(p).reshape({-1}));
  state.add_range(0, sums);
}

std::vector<Confusion> ConfusionCounts::counts(const torch::Tensor& total, int64_t label) const {
  const auto count = static_cast<std::size_t>(buckets());
  const double* positive = total.data_ptr<double>() + label * 2 * buckets();
  const double* negative = positive + count;
  std::vector<Confusion> found(count - 1);
  Confusion above;  // the weights in the buckets above a threshold
  for (std::size_t i = count - 1; i > 0; --i) {
    above.tp += positive[i];
    above.fp += negative[i];
    found[order_[i - 1]] = above;
  }
  Confusion below;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    below.fn += positive[i];
    below.tn += negative[i];
    found[order_[i]].fn = below.fn;
    found[order_[i]].tn = below.tn;
  }
  return found;
}

}  // namespace cohort
