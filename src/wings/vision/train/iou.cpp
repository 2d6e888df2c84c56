// Intersection over union of classes, from a matrix of how often each class was predicted where each was the label.
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <numeric>

#include "base/fail.h"
#include "cohort/train/iou.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

namespace {

struct IoUPlan {
  std::string name;
  int64_t num_classes = 0;
  std::vector<int64_t> target_class_ids;  // those whose mean is the metric
  std::optional<int64_t> ignore_class = std::nullopt;
  std::optional<double> threshold = std::nullopt;  // the threshold of predictions, which are of two classes then
  bool sparse_y = true;                            // targets are labels, not scores of the classes
  bool sparse_prediction = true;                   // predictions are labels
  int64_t axis = -1;                               // the dimension of the scores
  bool truncate_weights = true;                    // counts weights without their fractions
};

class IntersectionOverUnion final : public MetricRule {
 public:
  explicit IntersectionOverUnion(IoUPlan plan) : plan_(std::move(plan)), speaker_("[metrics] " + plan_.name) {
    if (plan_.num_classes < 1) {
      fail<InvalidArgument>(speaker_, ": num_classes must be positive, got ", plan_.num_classes);
    }
    for (const int64_t id : plan_.target_class_ids) {
      if (id >= 0 && id < plan_.num_classes) continue;
      fail<InvalidArgument>(speaker_, ": target_class_ids has ", id, ", but there are ", plan_.num_classes, " classes");
    }
    if (plan_.target_class_ids.empty()) fail<InvalidArgument>(speaker_, ": target_class_ids is empty");
  }

  const std::string& name() const override { return plan_.name; }
  Direction direction() const override { return Direction::kUp; }
  int64_t state_size() const override { return plan_.num_classes * plan_.num_classes; }

  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    torch::Tensor labels = (plan_.sparse_y ? y : y.argmax(plan_.axis)).to(torch::kLong);
    torch::Tensor predicted = prediction;
    if (plan_.threshold) predicted = prediction.ge(*plan_.threshold);
    if (!plan_.sparse_prediction) predicted = prediction.argmax(plan_.axis);
    labels = fit_target(speaker_, labels, predicted = predicted.to(torch::kLong));
    if (labels.numel() == 0) return;
    const auto doubles = labels.options().dtype(torch::kDouble);
    torch::Tensor weights = at::ones(labels.sizes(), doubles);
    if (weight.defined()) weights = fit_weight(speaker_, weight, weights).expand_as(labels);
    if (weight.defined() && plan_.truncate_weights) weights = weights.trunc();
    if (plan_.ignore_class) {
      const torch::Tensor counted = labels.ne(*plan_.ignore_class);
      weights = weights * counted;
      labels = labels * counted;
      predicted = predicted * counted;
    }
    require_in_range(labels, "labels");
    require_in_range(predicted, "predictions");
    torch::Tensor matrix = torch::zeros({state_size()}, doubles);
    matrix.index_add_(0, (labels * plan_.num_classes + predicted).reshape({-1}), weights.reshape({-1}));
    state.add_range(0, matrix);
  }

  double result(const torch::Tensor& total) const override {
    const torch::Tensor matrix = total.view({plan_.num_classes, plan_.num_classes});
    const torch::Tensor hits = matrix.diagonal();
    const torch::Tensor either = matrix.sum(0) + matrix.sum(1) - hits;
    double sum = 0.0, seen = 0.0;
    for (const int64_t id : plan_.target_class_ids) {
      const double any = either[id].item<double>();
      sum += hits[id].item<double>() / (any + kKerasEpsilon);
      seen += any > 0.0 ? 1.0 : 0.0;
    }
    return ratio(sum, seen);
  }

 private:
  // On a GPU the index itself asserts it.
  void require_in_range(const torch::Tensor& classes, const char* what) const {
    if (!classes.is_cpu()) return;
    const auto lowest = classes.min().item<int64_t>(), highest = classes.max().item<int64_t>();
    if (lowest >= 0 && highest < plan_.num_classes) return;
    fail<InvalidArgument>(speaker_, ": ", what, " from ", lowest, " to ", highest, ", but there are ",
                          plan_.num_classes, " classes");
  }

  IoUPlan plan_;
  std::string speaker_;
};

std::vector<int64_t> all_classes(int64_t num_classes) {
  std::vector<int64_t> ids(static_cast<std::size_t>(std::max<int64_t>(0, num_classes)));
  std::iota(ids.begin(), ids.end(), int64_t{0});
  return ids;
}

Metric iou(IoUPlan plan) {
  return Metric(std::make_shared<IntersectionOverUnion>(std::move(plan)));
}

// Makes the metric over these classes from the options that all but BinaryIoU have.
template <typename Options>
Metric iou_of(const Options& options, std::vector<int64_t> target_class_ids, bool sparse_y) {
  return iou({.name = options.name,
              .num_classes = options.num_classes,
              .target_class_ids = std::move(target_class_ids),
              .ignore_class = options.ignore_class,
              .sparse_y = sparse_y,
              .sparse_prediction = options.sparse_y_pred,
              .axis = options.axis,
              .truncate_weights = options.truncate_weights});
}

}  // namespace

Metric IoU(const IoUOptions& options) {
  return iou_of(options, options.target_class_ids, options.sparse_y_true);
}

Metric MeanIoU(const MeanIoUOptions& options) {
  return iou_of(options, all_classes(options.num_classes), options.sparse_y_true);
}

Metric OneHotIoU(const OneHotIoUOptions& options) {
  return iou_of(options, options.target_class_ids, /*sparse_y=*/false);
}

Metric OneHotMeanIoU(const OneHotMeanIoUOptions& options) {
  return iou_of(options, all_classes(options.num_classes), /*sparse_y=*/false);
}

Metric BinaryIoU(const BinaryIoUOptions& options) {
  return iou({.name = options.name,
              .num_classes = 2,
              .target_class_ids = options.target_class_ids,
              .threshold = options.threshold,
              .truncate_weights = options.truncate_weights});
}

}  // namespace cohort
