// Metrics: the sums that a rule adds to, and those of all replicas.
#include <ATen/Functions.h>

#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "base/tracer.h"
#include "cohort/train/metric.h"
#include "device/backend.h"
#include "strategy/context.h"
#include "strategy/core.h"
#include "strategy/divided.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

namespace {

// The mean of a loss' values, which it sums up itself where nothing has a weight.
class LossMetric final : public MetricRule {
 public:
  explicit LossMetric(Loss loss) : loss_(std::move(loss)), speaker_("[metrics] " + loss_.name()) {
    joint_ = dynamic_cast<const BatchLossRule*>(&loss_.rule());
    if (joint_ == nullptr || !joint_->needs_whole_batch()) return;
    fail<InvalidArgument>(speaker_, ": the loss depends on all examples of a batch, so that it has no mean over the ",
                          "examples; log it as a loss, or give it an axis without dimension 0 where it has one");
  }

  const std::string& name() const override { return loss_.name(); }
  Direction direction() const override { return loss_.rule().metric_sign() < 0 ? Direction::kUp : Direction::kDown; }
  int64_t state_size() const override { return 2; }
  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    require_targets(loss_.name(), y, prediction);
    if (joint_ != nullptr) {
      const auto values = joint_->values_within(OnePart(), y, prediction);
      add_mean(state, speaker_, values.each, masked_weight(speaker_, weight, values.counted));
    } else if (weight.defined()) {
      add_mean(state, speaker_, loss_.rule().values(y, prediction), weight);
    } else {
      state.add(0, loss_.sum(y, prediction));
      state.add(1, static_cast<double>(prediction.size(0)));
    }
  }
  double result(const torch::Tensor& total) const override { return loss_.rule().metric_sign() * mean_result(total); }

 private:
  Loss loss_;
  std::string speaker_;
  const BatchLossRule* joint_ = nullptr;
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

// Returns the sums with this many elements; those of a replica that has seen no batch are 0.
torch::Tensor with_size(const torch::Tensor& total, int64_t size) {
  return total.numel() == size ? total : at::zeros({size}, total.options());
}

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
    // Zeros that the host brings: where work is recorded they are no part of the step, which would be another program
    // for the first batch of an epoch.
    device_ = torch::zeros({static_cast<int64_t>(host_.size())}, torch::kDouble).to(device);
  }
  return device_;
}

void MetricState::require_size(int64_t wanted) {
  if (size() == wanted) return;
  if (size() != 0) fail<InvalidArgument>("[metrics] a state of ", size(), " sums got a batch that needs ", wanted);
  host_.resize(static_cast<std::size_t>(wanted), 0.0);
}

void MetricState::add(int64_t slot, double amount) {
  const Tracer* const tracer = Tracer::current();
  if (tracer == nullptr) {
    host_[static_cast<std::size_t>(slot)] += amount;
    return;
  }
  // The host would count while the tracer notes, and not in a run.
  const torch::NoGradGuard no_grad;
  on_device(tracer->traced_device()).select(0, slot).add_(amount);
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
  if (!device_.defined()) return;
  // A function that adds to the sums goes on with the same tensor.
  const torch::NoGradGuard no_grad;
  if (!backend_of(device_.device()).records()) {
    device_.zero_();
    return;
  }
  device_.copy_(torch::zeros(device_.sizes(), torch::kDouble));
}

void MetricState::prepare(torch::Device device) {
  if (!host_.empty()) on_device(device);
}

Metric::Metric(std::string name, Function values, Direction direction)
    : rule_(user_rule(std::move(name), std::move(values), direction)) {}

Metric::Metric(const Loss& loss) : rule_(made_with<LossMetric>(loss.rule().options(), loss)) {}

void Metric::update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
                    const torch::Tensor& weight, const torch::Tensor& mask) const {
  const torch::NoGradGuard no_grad;
  const bool takes_parts = dynamic_cast<const TakesParts*>(rule_.get()) != nullptr;
  rule_->update(state, y, takes_parts ? prediction : whole_of(prediction),
                mask.defined() ? masked_weight("[metrics] " + name(), weight, mask) : weight);
}

std::vector<double> Metric::results(const torch::Tensor& total) const {
  return total.numel() == 0 ? std::vector<double>{0.0} : rule_->results(total);
}

MirroredMetric::MirroredMetric(const Strategy& strategy, Metric metric)
    : strategy_(strategy), metric_(std::move(metric)) {
  for (int i = 0; i < strategy_.num_local_replicas(); ++i) slots_.push_back({metric_.make_state()});
}

MetricState& MirroredMetric::state(const Replica& replica) {
  return slots_[static_cast<std::size_t>(replica.local_id())].state;
}

void MirroredMetric::update_state(const torch::Tensor& y, const torch::Tensor& prediction, const torch::Tensor& weight,
                                  const torch::Tensor& mask) {
  const Replica* const replica = Replica::current();
  update_state(replica == nullptr ? Access::core(strategy_)->replica(0) : *replica, y, prediction, weight, mask);
}

void MirroredMetric::update_state(const Replica& replica, const torch::Tensor& y, const torch::Tensor& prediction,
                                  const torch::Tensor& weight, const torch::Tensor& mask) {
  if (is_elsewhere()) return;  // the process of the last stage counts
  metric_.update(state(replica), y, prediction, weight, mask);
}

torch::Tensor MirroredMetric::total() const {
  std::vector<torch::Tensor> totals;
  for (const Slot& slot : slots_) totals.push_back(slot.state.total());
  const auto sum = [this](std::vector<torch::Tensor> each) {
    return strategy_.reduce_to(ReduceOp::kSum, PerReplica<torch::Tensor>(std::move(each)), torch::kCPU);
  };
  if (metric_.has_fixed_size()) return sum(std::move(totals));
  // Replicas that have seen a batch know the size, and all of these the same one.
  std::vector<torch::Tensor> sizes;
  for (const torch::Tensor& total : totals) {
    const auto size = static_cast<double>(total.numel());
    sizes.push_back(torch::tensor({size, size > 0 ? 1.0 : 0.0}, torch::kDouble));
  }
  const torch::Tensor known = sum(std::move(sizes));
  const auto added = known[0].item<double>(), replicas = known[1].item<double>();
  const auto size = replicas == 0.0 ? 0 : static_cast<int64_t>(added / replicas);
  for (torch::Tensor& total : totals) {
    if (total.numel() != 0 && total.numel() != size) {
      fail<FailedPrecondition>("[metrics] ", metric_.name(), ": a replica has ", total.numel(),
                               " sums, but all of them ", added, " on ", replicas,
                               " replicas: their predictions have different shapes");
    }
    total = with_size(total, size);
  }
  return size == 0 ? torch::Tensor(totals.front()) : sum(std::move(totals));
}

torch::Tensor MirroredMetric::local_total() const {
  int64_t size = 0;
  for (const Slot& slot : slots_) size = std::max(size, slot.state.size());
  torch::Tensor sum;
  for (const int replica : Access::core(strategy_)->share_leaders()) {
    const torch::Tensor total = with_size(slots_[static_cast<std::size_t>(replica)].state.total(), size);
    sum = sum.defined() ? sum.add_(total) : total;
  }
  return sum;
}

void MirroredMetric::set_local_total(const torch::Tensor& total) {
  const int64_t size = slots_.front().state.size();
  const bool fits = total.dim() == 1 && total.scalar_type() == torch::kDouble &&
                    (total.size(0) == size || size == 0 || (total.size(0) == 0 && !metric_.has_fixed_size()));
  if (!fits) {
    fail<InvalidArgument>("[metrics] ", metric_.name(), ": its state has ", size, " sums, got ", total.scalar_type(),
                          total.sizes());
  }
  reset_state();
  add_local_total(total);
}

void MirroredMetric::add_local_total(const torch::Tensor& total) {
  if (total.numel() == 0) return;
  MetricState& state = slots_.front().state;
  state.require_size(total.numel());
  for (int64_t i = 0; i < total.numel(); ++i) state.add(i, total[i].item<double>());
}

void MirroredMetric::reset_state() {
  for (Slot& slot : slots_) slot.state.reset();
}

void MirroredMetric::prepare() {
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].state.prepare(strategy_.worker_devices()[i].torch_device);
}

}  // namespace cohort
