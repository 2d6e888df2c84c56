// Replicas on different devices, other cross-device ops than ring, or dtypes without kernels: gradients are packed into
// one flat run a replica and all-reduced in packs, and every replica updates its own copy with slots of its own. On
// devices of one process buckets leave during backward, and each is updated when its sum is there (device_buckets.h).
#include "step/exchange/communicator.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

#include "base/extension.h"
#include "base/fail.h"
#include "cohort/trace.h"
#include "device/backend.h"
#include "strategy/holders.h"

namespace cohort {

namespace {

// The bytes of a bucket that leaves during backward, if the strategy's options do not say, and the most of the last
// one.
constexpr int64_t kFullBucket = int64_t{8} << 20;
constexpr int64_t kLastBucket = int64_t{1} << 20;

// Returns the squared norm of each parameter's sum, on the replica's device.
torch::Tensor squared_norms(const FlatParameters& flat, const std::vector<torch::Tensor>& sums) {
  std::vector<torch::Tensor> each;
  for (std::size_t p = 0; p < flat.parameters().size(); ++p) {
    each.push_back(flat.part_of(sums[flat.parameters()[p].group], p).norm(2, torch::kDouble).square());
  }
  return at::stack(each);
}

// Returns the sum of the squared norms of all stages' parameters, each counted once.
torch::Tensor sum_of_stages(const StrategyCore& core, const FlatParameters& flat, const Replica& replica,
                            const torch::Tensor& squares) {
  torch::Tensor all = at::zeros({1}, squares.options());
  for (std::size_t p = 0; p < flat.counted().size(); ++p) {
    if (flat.counted()[p]) all.add_(squares.select(0, static_cast<int64_t>(p)));
  }
  core.group(stage_axis(core.topology())->name, replica.local_id()).all_reduce({&all, 1}, ReduceOp::kSum);
  return all;
}

}  // namespace

CommunicatorExchange::CommunicatorExchange(const ExchangeParts& parts)
    : Exchange(parts.flat),
      core_(parts.core),
      gradients_(parts.flat),
      packs_(gradient_packs(parts.core, parts.flat)),
      wire_(parts.core.plan().exchange.gradient_compression),
      sends_(parts.no_messages == nullptr) {
  const StrategyCore& core = parts.core;
  const FlatParameters& flat = parts.flat;
  for (std::size_t r = 0; r < static_cast<std::size_t>(core.num_local_replicas()); ++r) {
    std::vector<torch::Tensor> values;
    for (const FlatGroup& group : flat.groups()) values.push_back(group.copies[r]);
    updates_.emplace_back(flat, parts.rule, std::move(values));
  }
  if (flat.layout().cuts_any()) join_parts();
  for (int r = 0; wire_.has_hook() && r < core.num_local_replicas(); ++r) {
    hooks_.push_back(make_comm_hook(flat, core.plan().exchange, r));
  }
  begin_in_backward();
  if (!core.backend(0).captures()) return;
  for (const ExchangeInGraphsMaker& maker : extensions<ExchangeInGraphsMaker>()) in_graphs_ = maker.make(*this);
}

void CommunicatorExchange::backward(Replica& replica, const torch::Tensor& loss) {
  buckets_ ? buckets_->backward(replica.local_id(), loss) : Exchange::backward(replica, loss);
}

Verdict CommunicatorExchange::step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced,
                                   StepContext context) {
  const torch::NoGradGuard no_grad;
  if (!reduced) come(replica);
  if (buckets_ && !reduced) return step_by_buckets(replica.local_id(), gradients, context);
  gradients_.pack(replica.local_id(), gradients);
  const TraceSpan span("compute", "update");
  if (!reduced) all_reduce(replica, context.step);
  TensorUpdate::SquaredNorms norms;
  const bool staged = !flat_.counted().empty();
  if (lines_ || staged) {
    norms = [&](const std::vector<torch::Tensor>& sums) {
      TensorUpdate::Norms known{.squares = squared_norms(flat_, sums)};
      if (lines_) lines_->add_up(replica.local_id(), known.squares);
      if (staged) known.all = sum_of_stages(core_, flat_, replica, known.squares);
      return known;
    };
  }
  return update(replica.local_id()).update(gradients_.of(replica.local_id()), context, norms);
}

bool CommunicatorExchange::takes_other_messages() const {
  return wire_.has_hook() || flat_.layout().cuts_any() || !flat_.counted().empty();
}

std::vector<torch::Tensor> CommunicatorExchange::own_state() const {
  std::vector<torch::Tensor> list;
  for (const auto& hook : hooks_) {
    for (torch::Tensor& own : hook->state()) list.push_back(std::move(own));
  }
  return list;
}

void CommunicatorExchange::load_own_state(std::span<const torch::Tensor> state) {
  const std::size_t each = hooks_.empty() ? 0 : state.size() / hooks_.size();
  for (std::size_t r = 0; r < hooks_.size(); ++r) hooks_[r]->load(state.subspan(r * each, each));
}

void CommunicatorExchange::forget_own_state() {
  for (const auto& hook : hooks_) hook->forget();
}

void CommunicatorExchange::spread_slots(int64_t /*iterations*/) {
  for (std::size_t r = 1; r < updates_.size(); ++r) updates_[r].copy_slots(updates_.front());
}

// Has buckets leave during backward where the replicas' devices can add them up meanwhile.
void CommunicatorExchange::begin_in_backward() {
  if (takes_other_messages()) return;
  auto sums = core_.sums_beside();
  if (sums == nullptr) return;
  const auto plan = [this](std::span<const std::size_t> order) {
    const ExchangeOptions& options = core_.plan().exchange;
    if (options.num_packs > 1) return buckets_of_packs(flat_, order, packs_);
    int64_t full = options.num_packs == 0 ? 1 : kFullBucket;
    if (options.bytes_per_pack > 0) full = options.bytes_per_pack;
    return plan_buckets(flat_, order, {.full = full, .most_last = std::min(full, kLastBucket)});
  };
  buckets_ = std::make_unique<DeviceBuckets>(core_, flat_, gradients_, std::move(sums), wire_, plan);
}

// A bucket is updated while those after it travel, unless the update of any parameter needs all sums.
Verdict CommunicatorExchange::step_by_buckets(int me, const std::vector<torch::Tensor>& gradients,
                                              const StepContext& context) {
  const TraceSpan span("compute", "update");
  TensorUpdate& own = update(me);
  buckets_->complete(me, &gradients);
  if (own.needs_all()) {
    buckets_->each(me, [](std::span<const std::size_t>) {});
    return own.update(gradients_.of(me), context);
  }
  buckets_->each(
      me, [&](std::span<const std::size_t> parameters) { own.update_some(gradients_.of(me), parameters, context); });
  return true;
}

void CommunicatorExchange::sum_packed(Replica& replica) {
  const torch::NoGradGuard no_grad;
  come(replica);
  if (!buckets_) return all_reduce(replica, 0);
  buckets_->complete(replica.local_id(), nullptr);
  buckets_->each(replica.local_id(), [](std::span<const std::size_t>) {});
}

void CommunicatorExchange::join_parts() {
  lines_.emplace(core_, flat_);
  for (std::size_t r = 0; r < updates_.size(); ++r) {
    updates_[r].set_parts([this, r](std::size_t parameter) { return lines_->cut_of(static_cast<int>(r), parameter); });
  }
}

void CommunicatorExchange::all_reduce(Replica& replica, int64_t update) {
  const TraceSpan span("communication", "all-reduce");
  if (!hooks_.empty()) {
    CommHook& hook = *hooks_[static_cast<std::size_t>(replica.local_id())];
    if (hook.sums(update)) return hook.sum(replica.communicator(), gradients_.of(replica.local_id()), update);
  }
  for (std::size_t g = 0; g < packs_.size(); ++g) {
    for (const Pack& pack : packs_[g]) {
      wire_.all_reduce(replica.communicator(), gradients_.of(replica.local_id())[g].slice(0, pack.begin, pack.end));
    }
  }
}

std::unique_ptr<Exchange> make_communicator_exchange(const ExchangeParts& parts) {
  return std::make_unique<CommunicatorExchange>(parts);
}

}  // namespace cohort
