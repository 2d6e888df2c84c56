#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/fail.h"
#include "base/named.h"
#include "cohort/train/metrics.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

namespace {

// A loss sums its values in one operation.
class LossMetric final : public MetricRule {
 public:
  explicit LossMetric(Loss loss) : loss_(std::move(loss)), speaker_("[metrics] " + loss_.name()) {}

  const std::string& name() const override { return loss_.name(); }
  Direction direction() const override { return Direction::kDown; }
  int64_t state_size() const override { return 2; }
  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    if (weight.defined()) {
      add_mean(state, speaker_, loss_.per_example(y, prediction), weight);
      return;
    }
    state.add(0, loss_.sum(y, prediction));
    state.add(1, static_cast<double>(prediction.size(0)));
  }
  double result(const torch::Tensor& total) const override { return mean_result(total); }

 private:
  Loss loss_;
  std::string speaker_;
};

class RootMeanSquare final : public MeanMetric {
 public:
  explicit RootMeanSquare(const std::string& name)
      : MeanMetric(name, Direction::kDown, [speaker = "[metrics] " + name](const auto& y, const auto& prediction) {
          return at::square(prediction - fit_target(speaker, y, prediction));
        }) {}
  double result(const torch::Tensor& total) const override { return std::sqrt(mean_result(total)); }
};

std::shared_ptr<const MetricRule> user_rule(std::string name, Metric::Function values, Direction direction) {
  if (!values) fail<InvalidArgument>("[metrics] ", name, ": the function is empty");
  const auto checked = [name, values = std::move(values)](const torch::Tensor& y, const torch::Tensor& prediction) {
    torch::Tensor result = values(y, prediction);
    if (result.defined() && result.dim() > 0) return result;
    fail<InvalidArgument>("[metrics] ", name, ": the function returned ",
                          result.defined() ? "a scalar" : "an undefined tensor",
                          ", wanted values of [batch, ...]: do not reduce them");
  };
  return std::make_shared<MeanMetric>(name, direction, checked);
}

struct NamedMetric {
  std::string_view name;
  Metric (*make)();
};

const std::array kMetrics = {
    NamedMetric{"accuracy", [] { return Accuracy(); }},
    NamedMetric{"acc", [] { return Accuracy({.name = "acc"}); }},
    NamedMetric{"auc", [] { return AUC(); }},
    NamedMetric{"binary_accuracy", [] { return BinaryAccuracy(); }},
    NamedMetric{"binary_crossentropy", [] { return Metric(BinaryCrossentropy()); }},
    NamedMetric{"categorical_accuracy", [] { return CategoricalAccuracy(); }},
    NamedMetric{"categorical_crossentropy", [] { return Metric(CategoricalCrossentropy()); }},
    NamedMetric{"mae", [] { return Metric(MeanAbsoluteError({.name = "mae"})); }},
    NamedMetric{"mean_absolute_error", [] { return Metric(MeanAbsoluteError()); }},
    NamedMetric{"mean_squared_error", [] { return Metric(MeanSquaredError()); }},
    NamedMetric{"mse", [] { return Metric(MeanSquaredError({.name = "mse"})); }},
    NamedMetric{"precision", [] { return Precision(); }},
    NamedMetric{"recall", [] { return Recall(); }},
    NamedMetric{"root_mean_squared_error", [] { return RootMeanSquaredError(); }},
    NamedMetric{"sparse_categorical_accuracy", [] { return SparseCategoricalAccuracy(); }},
    NamedMetric{"sparse_categorical_crossentropy", [] { return Metric(SparseCategoricalCrossentropy()); }},
    NamedMetric{"sparse_top_k_categorical_accuracy", [] { return SparseTopKCategoricalAccuracy(); }},
    NamedMetric{"top_k_categorical_accuracy", [] { return TopKCategoricalAccuracy(); }},
};

}  // namespace

double ratio(double numerator, double denominator) {
  return denominator == 0.0 ? 0.0 : numerator / denominator;
}

double mean_result(const torch::Tensor& total) {
  return ratio(total[0].item<double>(), total[1].item<double>());
}

void add_mean(MetricState& state, const std::string& speaker, const torch::Tensor& values,
              const torch::Tensor& weight) {
  if (!weight.defined()) {
    state.add(0, values.sum());
    state.add(1, static_cast<double>(values.numel()));
    return;
  }
  const torch::Tensor wide = values.to(torch::kDouble);
  const torch::Tensor fitted = fit_weight(speaker, weight, wide).expand_as(wide);
  state.add(0, (wide * fitted).sum());
  state.add(1, fitted.sum());
}

torch::Tensor& MetricState::on_device(torch::Device device) {
  if (!device_.defined()) {
    device_ = torch::zeros({static_cast<int64_t>(host_.size())}, torch::TensorOptions(torch::kDouble).device(device));
  }
  return device_;
}

void MetricState::add(int64_t slot, const torch::Tensor& scalar) {
  if (scalar.is_cpu()) {
    add(slot, scalar.item().toDouble());
    return;
  }
  const torch::NoGradGuard no_grad;
  on_device(scalar.device()).select(0, slot).add_(scalar.detach());
}

void MetricState::add_range(int64_t first, const torch::Tensor& values) {
  const torch::NoGradGuard no_grad;
  on_device(values.device()).narrow(0, first, values.numel()).add_(values.detach());
}

torch::Tensor MetricState::total() const {
  torch::Tensor sum = torch::tensor(host_, torch::kDouble);
  if (device_.defined()) sum.add_(device_.cpu());
  return sum;
}

void MetricState::reset() {
  std::fill(host_.begin(), host_.end(), 0.0);
  device_ = torch::Tensor();
}

Metric::Metric(std::string name, Function values, Direction direction)
    : rule_(user_rule(std::move(name), std::move(values), direction)) {}

Metric::Metric(const Loss& loss) : rule_(std::make_shared<LossMetric>(loss)) {}

Metric::Metric(const char* name) : Metric(find_named(kMetrics, name, "metrics", "metric").make()) {}

void Metric::update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
                    const torch::Tensor& weight) const {
  const torch::NoGradGuard no_grad;
  rule_->update(state, y, prediction, weight);
}

Metric Mean(const MeanOptions& options) {
  return Metric(
      std::make_shared<MeanMetric>(options.name, Direction::kUnknown,
                                   [](const torch::Tensor& /*y*/, const torch::Tensor& values) { return values; }));
}

Metric RootMeanSquaredError(const RootMeanSquaredErrorOptions& options) {
  return Metric(std::make_shared<RootMeanSquare>(options.name));
}

MirroredMetric::MirroredMetric(const Strategy& strategy, Metric metric)
    : strategy_(strategy), metric_(std::move(metric)) {
  for (int i = 0; i < strategy_.num_local_replicas(); ++i) slots_.push_back({metric_.make_state()});
}

MetricState& MirroredMetric::state(const Replica& replica) {
  return slots_[static_cast<std::size_t>(replica.local_id())].state;
}

void MirroredMetric::update(const Replica& replica, const torch::Tensor& y, const torch::Tensor& prediction,
                            const torch::Tensor& weight) {
  metric_.update(state(replica), y, prediction, weight);
}

double MirroredMetric::result() const {
  std::vector<torch::Tensor> totals;
  for (const Slot& slot : slots_) totals.push_back(slot.state.total());
  return metric_.result(strategy_.reduce_to(ReduceOp::kSum, PerReplica<torch::Tensor>(std::move(totals)), torch::kCPU));
}

torch::Tensor MirroredMetric::local_total() const {
  torch::Tensor sum = slots_.front().state.total();
  for (std::size_t i = 1; i < slots_.size(); ++i) sum.add_(slots_[i].state.total());
  return sum;
}

void MirroredMetric::set_local_total(const torch::Tensor& total) {
  const int64_t size = slots_.front().state.total().numel();
  if (total.dim() != 1 || total.size(0) != size || total.scalar_type() != torch::kDouble) {
    fail<InvalidArgument>("[metrics] ", metric_.name(), ": its state has ", size, " sums, got ", total.scalar_type(),
                          total.sizes());
  }
  reset();
  for (int64_t i = 0; i < size; ++i) slots_.front().state.add(i, total[i].item<double>());
}

double MirroredMetric::local_result() const {
  return metric_.result(local_total());
}

void MirroredMetric::reset() {
  for (Slot& slot : slots_) slot.state.reset();
}

}  // namespace cohort
