#include <ATen/Functions.h>

#include "base/access.h"
#include "base/fail.h"
#include "cohort/train/metric.h"
#include "strategy/core.h"
#include "strategy/replica_scope.h"

namespace cohort {

namespace {

// Returns the sums with this many elements; those of a replica that has seen no batch are 0.
torch::Tensor with_size(const torch::Tensor& total, int64_t size) {
  return total.numel() == size ? total : at::zeros({size}, total.options());
}

}  // namespace

MirroredMetric::MirroredMetric(const Strategy& strategy, Metric metric)
    : strategy_(strategy), metric_(std::move(metric)) {
  for (int i = 0; i < strategy_.num_local_replicas(); ++i) slots_.push_back({metric_.make_state()});
}

MetricState& MirroredMetric::state(const Replica& replica) {
  return slots_[static_cast<std::size_t>(replica.local_id())].state;
}

void MirroredMetric::update(const Replica& replica, const torch::Tensor& y, const torch::Tensor& prediction,
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
  reset();
  add_local_total(total);
}

void MirroredMetric::add_local_total(const torch::Tensor& total) {
  if (total.numel() == 0) return;
  MetricState& state = slots_.front().state;
  state.require_size(total.numel());
  for (int64_t i = 0; i < total.numel(); ++i) state.add(i, total[i].item<double>());
}

void MirroredMetric::reset() {
  for (Slot& slot : slots_) slot.state.reset();
}

void MirroredMetric::prepare() {
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].state.prepare(strategy_.worker_devices()[i].torch_device);
}

}  // namespace cohort
