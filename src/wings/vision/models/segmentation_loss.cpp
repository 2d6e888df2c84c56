// A pixel's cross-entropy and what becomes of it: a mean over pixels, over those that have a class, or over the worst
// of the batch. The last two depend on the other replicas' pixels, so they are rules of a whole batch, and where they
// are not asked for nothing has to be exchanged.
#include "wings/vision/models/segmentation_loss.h"

#include <ATen/Functions.h>

#include <limits>

#include "base/fail.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

namespace {

constexpr const char* kName = "segmentation";
constexpr const char* kSpeaker = "[losses] segmentation";

// The factor of each pixel's class.
torch::Tensor class_factor(const std::vector<double>& weights, const torch::Tensor& labels,
                           const torch::Tensor& prediction) {
  const torch::Tensor all = at::tensor(weights, torch::kDouble).to(prediction.options());
  return all.index_select(0, labels.reshape({-1})).view(labels.sizes());
}

// [examples, height, width]
torch::Tensor softmax_entropy(const SegmentationLossOptions& options, const torch::Tensor& labels,
                              const torch::Tensor& prediction) {
  constexpr int64_t kIgnoreNothing = std::numeric_limits<int32_t>::min();
  const double smoothing = options.label_smoothing;
  const torch::Tensor logs = at::log_softmax(prediction, 1);
  torch::Tensor each = at::nll_loss_nd(logs, labels, {}, at::Reduction::None, kIgnoreNothing);
  if (smoothing > 0.0) each = each * (1.0 - smoothing) - logs.mean(1) * smoothing;
  if (options.class_weights.empty()) return each;
  return each * class_factor(options.class_weights, labels, prediction);
}

// [examples, height, width]: the mean over the classes
torch::Tensor sigmoid_entropy(const SegmentationLossOptions& options, const torch::Tensor& labels,
                              const torch::Tensor& prediction) {
  const int64_t classes = options.num_classes;
  const torch::Tensor numbers = at::arange(classes, torch::kLong).to(labels.device()).view({1, classes, 1, 1});
  const torch::Tensor own = labels.unsqueeze(1).eq(numbers).to(prediction.scalar_type());
  const torch::Tensor target =
      own * (1.0 - options.label_smoothing) + options.label_smoothing / static_cast<double>(classes);
  torch::Tensor each = at::binary_cross_entropy_with_logits(prediction, target, {}, {}, at::Reduction::None);
  if (!options.class_weights.empty()) {
    each = each * at::tensor(options.class_weights, torch::kDouble).to(prediction.options()).view({1, classes, 1, 1});
  }
  return each.mean(1);
}

torch::Tensor entropy(const SegmentationLossOptions& options, const torch::Tensor& labels,
                      const torch::Tensor& prediction) {
  const torch::Tensor each =
      options.binary ? sigmoid_entropy(options, labels, prediction) : softmax_entropy(options, labels, prediction);
  return options.weight == 1.0 ? each : each * options.weight;
}

class OfAllPixels final : public LossRule {
 public:
  explicit OfAllPixels(SegmentationLossOptions options) : options_(std::move(options)) {}

  const std::string& name() const override { return name_; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    return entropy(options_, fit_labels(kSpeaker, y, prediction, 1), prediction);
  }

 private:
  SegmentationLossOptions options_;
  std::string name_ = kName;
};

class OfSomePixels final : public BatchLossRule {
 public:
  explicit OfSomePixels(SegmentationLossOptions options) : options_(std::move(options)) {}

  const std::string& name() const override { return name_; }
  bool needs_whole_batch() const override { return options_.top_k < 1.0; }
  Values values_within(const WholeBatch& batch, const torch::Tensor& y,
                       const torch::Tensor& prediction) const override {
    const torch::Tensor labels = fit_labels(kSpeaker, y, prediction, 1);
    const torch::Tensor counted =
        options_.ignore_label ? labels.ne(*options_.ignore_label) : at::ones_like(labels, torch::kBool);
    torch::Tensor each = entropy(options_, labels * counted, prediction);
    each = each.masked_fill(counted.logical_not(), 0.0);
    if (options_.top_k >= 1.0) return {.each = each, .counted = counted};
    const torch::Tensor all = batch.rows(each).reshape({-1});
    const auto k = static_cast<int64_t>(options_.top_k * static_cast<double>(all.numel()));
    const torch::Tensor number = batch.sum(counted.sum().to(each.scalar_type())).clamp(1, std::max<int64_t>(1, k));
    const torch::Tensor worst = std::get<0>(all.topk(std::min(all.numel(), std::max<int64_t>(1, k)))).sum();
    return {.each = worst / number, .counted = {}, .of_batch = true};
  }

 private:
  SegmentationLossOptions options_;
  std::string name_ = kName;
};

class PixelAccuracy final : public MetricRule {
 public:
  explicit PixelAccuracy(std::optional<int64_t> ignore_label) : ignore_label_(ignore_label) {}

  const std::string& name() const override { return name_; }
  Direction direction() const override { return Direction::kUp; }
  int64_t state_size() const override { return 2; }
  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    const std::string speaker = "[metrics] accuracy";
    const torch::Tensor labels = fit_labels(speaker, y, prediction, 1);
    const torch::Tensor hits = prediction.argmax(1).eq(labels);
    if (!ignore_label_) return add_mean(state, speaker, hits, weight);
    torch::Tensor counted = labels.ne(*ignore_label_).to(torch::kDouble);
    if (weight.defined()) counted = counted * fit_weight(speaker, weight, counted);
    add_mean(state, speaker, hits, counted);
  }
  double result(const torch::Tensor& total) const override { return mean_result(total); }

 private:
  std::optional<int64_t> ignore_label_;
  std::string name_ = "accuracy";
};

}  // namespace

Loss segmentation_loss(const SegmentationLossOptions& options) {
  const auto weights = static_cast<int64_t>(options.class_weights.size());
  if (weights != 0 && weights != options.num_classes) {
    fail<InvalidArgument>("[task] task.losses.class_weights has ", weights, " numbers, wanted one for each of the ",
                          options.num_classes, " classes of task.model.num_classes");
  }
  if (options.ignore_label || options.top_k < 1.0) return Loss(std::make_shared<OfSomePixels>(options));
  return Loss(std::make_shared<OfAllPixels>(options));
}

Metric pixel_accuracy(std::optional<int64_t> ignore_label) {
  return Metric(std::make_shared<PixelAccuracy>(ignore_label));
}

}  // namespace cohort
