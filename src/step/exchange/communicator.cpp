// Replicas on different devices, other cross-device ops than ring, or dtypes without kernels: gradients are packed into
// one flat run a replica and all-reduced in packs, and every replica updates its own copy with slots of its own. On
// devices of one process buckets leave during backward, and each is updated when its sum is there (device_buckets.h).
#include <ATen/Functions.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>

#include "base/fail.h"
#include "cohort/trace.h"
#include "collective/gradient_wire.h"
#include "step/exchange/device_buckets.h"
#include "step/exchange/exchange.h"
#include "step/exchange/power_sgd.h"
#include "step/flat_gradients.h"
#include "step/update/tensors.h"
#include "strategy/core.h"
#include "strategy/holders.h"
#include "wings/function/device/graph_capture.h"
#include "wings/function/step/graph_agreement.h"
#include "wings/function/step/in_graphs.h"

namespace cohort {

namespace {

// The bytes of a bucket that leaves during backward, if the strategy's options do not say, and the most of the last
// one.
constexpr int64_t kFullBucket = int64_t{8} << 20;
constexpr int64_t kLastBucket = int64_t{1} << 20;

// Returns the squared norm of each parameter's sum, on the replica's device. The parts of those that are cut are added
// up along their axes, in one message an axis; what every replica has is counted once.
torch::Tensor squared_norms(const StrategyCore& core, const FlatParameters& flat, const Replica& replica,
                            const std::vector<torch::Tensor>& sums) {
  std::vector<torch::Tensor> each;
  for (std::size_t p = 0; p < flat.parameters().size(); ++p) {
    each.push_back(flat.part_of(sums[flat.parameters()[p].group], p).norm(2, torch::kDouble).square());
  }
  torch::Tensor squares = at::stack(each);
  for (const Axis& axis : core.topology().axes()) {
    if (axis.role != AxisRole::kModel) continue;
    torch::Tensor is_cut = at::zeros_like(squares, torch::kBool);
    for (std::size_t p = 0; p < flat.parameters().size(); ++p) {
      const ParameterCut* cut = flat.layout().find(flat.parameters()[p].name);
      if (cut != nullptr && cut->axis == axis.name) is_cut.select(0, static_cast<int64_t>(p)).fill_(true);
    }
    torch::Tensor whole = squares.clone();
    replica.group(axis.name).all_reduce({&whole, 1}, ReduceOp::kSum);
    squares = at::where(is_cut, whole, squares);
  }
  return squares;
}

// Returns those of the parameters that this process has, and the sum of those of all stages, each counted once.
TensorUpdate::Norms norms_of_stages(const StrategyCore& core, const FlatParameters& flat, const Replica& replica,
                                    const std::vector<torch::Tensor>& sums) {
  TensorUpdate::Norms norms{.squares = squared_norms(core, flat, replica, sums)};
  norms.all = at::zeros({1}, norms.squares.options());
  for (std::size_t p = 0; p < flat.counted().size(); ++p) {
    if (flat.counted()[p]) norms.all.add_(norms.squares.select(0, static_cast<int64_t>(p)));
  }
  core.group(stage_axis(core.topology())->name, replica.local_id()).all_reduce({&norms.all, 1}, ReduceOp::kSum);
  return norms;
}

class CommunicatorExchange final : public Exchange, public ExchangeInGraphs {
 public:
  explicit CommunicatorExchange(const ExchangeParts& parts)
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
    for (int r = 0; wire_.approximates() && r < core.num_local_replicas(); ++r) {
      power_sgd_.emplace_back(flat, core.plan().exchange.power_sgd, r);
    }
    if (core.backend(0).captures()) agreement_ = std::make_shared<GraphAgreement>(core_.rendezvous());
    begin_in_backward();
  }

  void backward(Replica& replica, const torch::Tensor& loss) override {
    buckets_ ? buckets_->backward(replica.local_id(), loss) : Exchange::backward(replica, loss);
  }

  Verdict step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override {
    const torch::NoGradGuard no_grad;
    if (!reduced) come(replica);
    if (buckets_ && !reduced) return step_by_buckets(replica.local_id(), gradients, context);
    gradients_.pack(replica.local_id(), gradients);
    const TraceSpan span("compute", "update");
    if (!reduced) all_reduce(replica, context.step);
    TensorUpdate::SquaredNorms norms;
    if (flat_.layout().cuts_any()) {
      norms = [&](const std::vector<torch::Tensor>& sums) {
        return TensorUpdate::Norms{.squares = squared_norms(core_, flat_, replica, sums)};
      };
    } else if (!flat_.counted().empty()) {
      norms = [&](const std::vector<torch::Tensor>& sums) { return norms_of_stages(core_, flat_, replica, sums); };
    }
    return updates_[static_cast<std::size_t>(replica.local_id())].update(gradients_.of(replica.local_id()), context,
                                                                         norms);
  }

  // Norms of parts, and of stages, take messages in the middle of the update; the approximation goes by its step.
  std::optional<std::vector<double>> graph_numbers(int local_id, const StepContext& context) const override {
    const TensorUpdate& update = updates_[static_cast<std::size_t>(local_id)];
    const bool takes_messages = wire_.approximates() || flat_.layout().cuts_any() || !flat_.counted().empty();
    if (takes_messages || !update.reads_numbers()) return std::nullopt;
    return update.numbers(context);
  }

  // A segment has one exchange within at most, so that all replicas have as many of them.
  Verdict step_in_graph(GraphCapture& capture, Replica& replica, const CapturedStep& step) override {
    const torch::NoGradGuard no_grad;
    const int me = replica.local_id();
    const bool sums = !step.reduced && sends_;
    if (sums && capture.has_company()) capture.part({.act = [] {}});
    const bool within = sums && in_graphs_ && all_capture(capture, me);
    const auto begin = [this, me, within] { within ? buckets_->begin_graph(me) : buckets_->begin_step(me); };
    if (buckets_) capture.before({.act = begin, .owner = step.owner});
    gradients_.pack(me, step.gradients);
    Verdict verdict = true;
    const auto update = [&] {
      verdict = updates_[static_cast<std::size_t>(me)].update(gradients_.of(me), step.context, {}, step.numbers);
      step.note(verdict);
    };
    if (within) {
      buckets_->update_in_graphs(capture, me, update, {step.numbers});
      return verdict;
    }
    if (sums) capture.part({.act = [this, &replica] { sum_packed(replica); }, .owner = step.owner});
    update();
    return verdict;
  }

  std::vector<torch::Tensor> own_state() const override {
    std::vector<torch::Tensor> list;
    for (const PowerSgd& each : power_sgd_) {
      for (torch::Tensor& own : each.state()) list.push_back(std::move(own));
    }
    return list;
  }
  void load_own_state(std::span<const torch::Tensor> state) override {
    const std::size_t each = power_sgd_.empty() ? 0 : state.size() / power_sgd_.size();
    for (std::size_t r = 0; r < power_sgd_.size(); ++r) power_sgd_[r].load(state.subspan(r * each, each));
  }
  void forget_own_state() override {
    for (PowerSgd& each : power_sgd_) each.forget();
  }

  Slots slots() const override { return updates_.front().slots(); }
  Slots slots_of(int local_id) const override { return updates_[static_cast<std::size_t>(local_id)].slots(); }
  void spread_slots(const Slots& /*loaded*/, int64_t /*iterations*/) override {
    for (std::size_t r = 1; r < updates_.size(); ++r) updates_[r].copy_slots(updates_.front());
  }

 private:
  // Has buckets leave during backward where the replicas' devices can add them up meanwhile. Norms of parts, and
  // factors, take other messages.
  void begin_in_backward() {
    if (wire_.approximates() || flat_.layout().cuts_any() || !flat_.counted().empty()) return;
    auto sums = core_.sums_beside();
    if (sums == nullptr) return;
    const auto plan = [this](std::span<const std::size_t> order) {
      const ExchangeOptions& options = core_.plan().exchange;
      if (options.num_packs > 1) return buckets_of_packs(flat_, order, packs_);
      int64_t full = options.num_packs == 0 ? 1 : kFullBucket;
      if (options.bytes_per_pack > 0) full = options.bytes_per_pack;
      return plan_buckets(flat_, order, {.full = full, .most_last = std::min(full, kLastBucket)});
    };
    in_graphs_ = sums->fits_graphs() && agreement_ != nullptr;
    buckets_ = std::make_unique<DeviceBuckets>(core_, flat_, gradients_, std::move(sums), agreement_, wire_, plan);
  }

  // Graphs of other replicas may be about to exchange by themselves, or for another optimizer.
  void come(const Replica& replica) {
    if (in_graphs_ || (agreement_ && core_.optimizers().several())) agreement_->come(replica.local_id());
  }
  // Returns whether the exchange is a part of the graphs that all replicas capture. Once graphs have one they agree on
  // each run before it begins; behind a part of the host's that comes too late.
  bool all_capture(const GraphCapture& capture, int me) {
    const bool agrees_first = capture.segments() == 0 || capture.has_joined();
    return agreement_->all_capture(me, agrees_first && buckets_->fits_graphs());
  }

  // A bucket is updated while those after it travel, unless the update of any parameter needs all sums.
  Verdict step_by_buckets(int me, const std::vector<torch::Tensor>& gradients, const StepContext& context) {
    const TraceSpan span("compute", "update");
    TensorUpdate& update = updates_[static_cast<std::size_t>(me)];
    buckets_->complete(me, &gradients);
    if (update.needs_all()) {
      buckets_->each(me, [](std::span<const std::size_t>) {});
      return update.update(gradients_.of(me), context);
    }
    buckets_->each(me, [&](std::span<const std::size_t> parameters) {
      update.update_some(gradients_.of(me), parameters, context);
    });
    return true;
  }

  // Adds up what is in the flat gradients of all replicas.
  void sum_packed(Replica& replica) {
    const torch::NoGradGuard no_grad;
    come(replica);
    if (!buckets_) return all_reduce(replica, 0);
    buckets_->complete(replica.local_id(), nullptr);
    buckets_->each(replica.local_id(), [](std::span<const std::size_t>) {});
  }

  // The norms and means of parameters are those of all their parts: over a replica's line along the axis of the cut.
  void join_parts() {
    for (std::size_t r = 0; r < updates_.size(); ++r) {
      auto& lines = lines_.emplace_back();
      for (const Axis& axis : core_.topology().axes()) {
        Communicator& line = core_.group(axis.name, static_cast<int>(r));
        lines[axis.name] = [&line](torch::Tensor& numbers) { line.all_reduce({&numbers, 1}, ReduceOp::kSum); };
      }
      updates_[r].set_parts([this, r](std::size_t parameter) {
        const ParameterCut* cut = flat_.layout().find(flat_.parameters()[parameter].name);
        if (cut == nullptr) return TensorUpdate::Cut{};
        return TensorUpdate::Cut{.add_up = &lines_[r].at(cut->axis), .dim = cut->dim, .parts = cut->parts};
      });
    }
  }

  void all_reduce(Replica& replica, int64_t update) {
    const TraceSpan span("communication", "all-reduce");
    if (!power_sgd_.empty()) {
      PowerSgd& power_sgd = power_sgd_[static_cast<std::size_t>(replica.local_id())];
      if (power_sgd.approximates(update)) {
        return power_sgd.sum(replica.communicator(), gradients_.of(replica.local_id()), update);
      }
    }
    for (std::size_t g = 0; g < packs_.size(); ++g) {
      for (const Pack& pack : packs_[g]) {
        wire_.all_reduce(replica.communicator(), gradients_.of(replica.local_id())[g].slice(0, pack.begin, pack.end));
      }
    }
  }

  StrategyCore& core_;
  FlatGradients gradients_;
  std::vector<std::vector<Pack>> packs_;  // [group]
  GradientWire wire_;
  bool sends_;                                 // gradients become messages
  std::vector<PowerSgd> power_sgd_;            // [replica]; none where the messages have the gradients themselves
  std::vector<TensorUpdate> updates_;          // [replica]
  std::unique_ptr<DeviceBuckets> buckets_;     // null: gradients leave after backward
  std::shared_ptr<GraphAgreement> agreement_;  // null: the devices have no graphs
  bool in_graphs_ = false;                     // they may be added up within graphs
  // [replica]: what adds up over its line along each axis; a deque, because functions in it are pointed to.
  std::deque<std::map<std::string, std::function<void(torch::Tensor& numbers)>>> lines_;
};

}  // namespace

std::unique_ptr<Exchange> make_communicator_exchange(const ExchangeParts& parts) {
  return std::make_unique<CommunicatorExchange>(parts);
}

}  // namespace cohort
