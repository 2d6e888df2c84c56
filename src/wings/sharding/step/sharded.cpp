// Replicas that share the states of an optimizer (ZeRO, Rajbhandari et al., 2020): the sum of the gradients goes to the
// owner of each slice, who alone has the slots of it; he updates it in his copy of the parameters, and all gather the
// slices. In stage 2 gradients go there while backward runs, and those of accumulated calls are kept by their owners.
// On the CPUs of one process shared_memory.cpp does what stage 1 is for without messages.
#include "wings/sharding/step/sharded.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "cohort/trace.h"
#include "step/exchange/in_shards.h"
#include "step/exchange/watched_backward.h"
#include "step/update/cut_lines.h"
#include "strategy/core.h"
#include "strategy/worker_group.h"
#include "wings/sharding/step/scattered_gradients.h"
#include "wings/sharding/step/shard_plan.h"
#include "wings/sharding/step/shard_update.h"

namespace cohort {

namespace {

// The least bytes of a message, if the strategy's options do not say.
constexpr int64_t kMessage = int64_t{8} << 20;

// Returns whether a replica's backward pass may wait for the other replicas. Where several replicas are on one GPU
// LibTorch computes their backward passes in one thread.
bool waits_in_backward(const StrategyCore& core) {
  const std::vector<LogicalDevice>& devices = core.plan().devices;
  for (std::size_t r = 1; r < devices.size(); ++r) {
    for (std::size_t other = 0; other < r; ++other) {
      if (!devices[r].torch_device.is_cpu() && devices[r].torch_device == devices[other].torch_device) return false;
    }
  }
  return true;
}

// Returns whether messages travel while backward goes on. Replicas that meet in this process wait for theirs, so that
// none is under way when one of them fails.
bool messages_travel_alone(const StrategyCore& core) {
  const bool meet = core.launch().facts().no_messages == nullptr;
  return !meet && core.workers().overlaps();
}

class ShardedExchange final : public Exchange, public ExchangeInShards {
 public:
  explicit ShardedExchange(const ExchangeParts& parts)
      : Exchange(parts.flat),
        core_(parts.core),
        plan_(flat_, gradient_packs(core_, flat_, kMessage), core_.topology().axis(axis()).size,
              takes_whole(parts.rule, updates_by_kernels(core_, flat_))),
        gradients_(core_, flat_, plan_, /*overlaps=*/shares_gradients() && messages_travel_alone(core_)) {
    if (flat_.layout().cuts_any()) cuts_.emplace(core_, flat_);
    if (shares_gradients() && waits_in_backward(core_)) {
      watched_.emplace(flat_, [this](int local_id, std::size_t p) {
        flat_.note_reached(local_id, p);
        gradients_.take(local_id, p, std::exchange(flat_.tensors(local_id)[p].mutable_grad(), {}));
      });
    }
    for (int r = 0; r < core_.num_local_replicas(); ++r) {
      const auto copy = static_cast<std::size_t>(r);
      std::unique_ptr<OffloadedPart> host;
      if (core_.offloads_states(r)) {
        host = std::make_unique<OffloadedPart>(flat_, plan_, line(r).rank(), copy, core_.backend(r));
      }
      updates_.emplace_back(flat_, parts.rule, plan_, line(r).rank(), copy, updates_by_kernels(core_, flat_),
                            std::move(host));
      if (cuts_) updates_.back().set_parts(*cuts_);
    }
  }

  void backward(Replica& replica, const torch::Tensor& loss) override {
    if (!watched_) return Exchange::backward(replica, loss);
    gradients_.begin(replica.local_id());
    watched_->run(replica.local_id(), loss);
    if (replica.local_id() == 0) gradients_.end_backward();
  }
  ExchangeTimeline timeline() const override { return gradients_.timeline(); }
  void drop_step() override { gradients_.drop_step(); }

  Verdict step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) override {
    return update(replica, scatter(replica, std::move(gradients), reduced), context);
  }

  ExchangeInShards* shards() override { return shares_gradients() ? this : nullptr; }

  std::vector<torch::Tensor> scatter(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced) override {
    const torch::NoGradGuard no_grad;
    const int me = replica.local_id();
    return reduced ? gradients_.own(me, gradients) : gradients_.sums(me, std::move(gradients));
  }

  Verdict update(Replica& replica, std::vector<torch::Tensor> sums, StepContext context) override {
    const torch::NoGradGuard no_grad;
    const int me = replica.local_id();
    const TraceSpan span("compute", "update and all-gather");
    ShardUpdate& own = updates_[static_cast<std::size_t>(me)];
    if (ParameterShards* const shards = shards_of(flat_)) {
      shards->begin_update(me);
      Verdict verdict = own.update(sums, context, line(me));
      shards->end_update(me);
      return verdict;
    }
    Verdict verdict = own.update(sums, context, line(me));
    if (!verdict.is_left_out()) gather_parameters(me);
    return verdict;
  }

  std::vector<torch::Tensor> in_place(int local_id, const std::vector<torch::Tensor>& sums) const override {
    std::vector<torch::Tensor> whole(flat_.parameters().size());
    for (const ShardPiece& piece : plan_.pieces(line(local_id).rank())) {
      const FlatParameter& parameter = flat_.parameters()[piece.parameter];
      const torch::Tensor& slice = sums[piece.unit];
      torch::Tensor& own = whole[piece.parameter];
      if (!own.defined()) own = torch::empty_strided(parameter.shape, parameter.strides, slice.options()).zero_();
      own.as_strided({parameter.size}, {1})
          .narrow(0, piece.begin, piece.size)
          .copy_(slice.narrow(0, piece.in_slice, piece.size));
    }
    return whole;
  }

  Slots slots() const override { return slots_of_all().front(); }

  // A collective of all workers: each brings the shards of its replicas. Those of a line have the same whole.
  std::vector<Slots> slots_of_all() const override {
    std::map<int, Slots> lines;
    for (int r = 0; r < core_.num_local_replicas(); ++r) lines.try_emplace(line_number(core_.replica_id(r)), zeros());
    for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
      for (std::size_t s = 0; s < updates_.front().slots()[g].size(); ++s) gather_slot(g, s, lines);
    }
    std::vector<Slots> all;
    for (int r = 0; r < core_.num_local_replicas(); ++r) all.push_back(lines.at(line_number(core_.replica_id(r))));
    return all;
  }

  std::optional<std::vector<OwnSlots>> own_slots() const override {
    std::vector<OwnSlots> all;
    for (std::size_t r = 0; r < updates_.size(); ++r) {
      for (const ShardPiece& piece : plan_.pieces(updates_[r].owner())) {
        OwnSlots own{.local_id = static_cast<int>(r),
                     .parameter = piece.parameter,
                     .elements = {piece.begin, piece.begin + piece.size},
                     .values = {}};
        for (const torch::Tensor& slot : updates_[r].slots()[flat_.parameters()[piece.parameter].group]) {
          own.values.push_back(slot.narrow(0, piece.at, piece.size));
        }
        all.push_back(std::move(own));
      }
    }
    return all;
  }

  void set_values(int local_id, const std::vector<torch::Tensor>& values) override {
    ParameterShards* const shards = shards_of(flat_);
    if (shards == nullptr) return Exchange::set_values(local_id, values);
    shards->set(local_id, values);
  }

  StateBytes state_bytes() const override {
    StateBytes bytes;
    if (flat_.shared() == nullptr) bytes.parameters = parameter_bytes();
    for (std::size_t r = 0; r < updates_.size(); ++r) {
      const auto me = static_cast<int>(r);
      const bool offloads = core_.offloads_states(me);
      if (ParameterShards* const shards = shards_of(flat_)) {
        const int64_t own = offloads ? 0 : shards->shard_bytes(me);
        bytes.parameters = std::max(bytes.parameters, own + shards->peak_bytes(me));
      }
      const int64_t slots = bytes_of(updates_[r].slots());
      bytes.gradients = std::max(bytes.gradients, gradients_.peak_bytes(me));
      if (offloads) {
        bytes.offloaded = std::max(bytes.offloaded, slots + 2 * bytes_of_part(updates_[r].owner()));
      } else {
        bytes.slots = std::max(bytes.slots, slots);
      }
    }
    return bytes;
  }

 private:
  bool shares_gradients() const { return core_.plan().sharding.stage >= 2; }

  const std::string& axis() const { return core_.plan().sharding.axis; }
  Communicator& line(int local_id) const { return core_.group(axis(), local_id); }
  // Returns the owner that a replica of any process is.
  int owner_of(int replica) const {
    const std::vector<int> owners = core_.topology().line(axis(), replica);
    return static_cast<int>(std::find(owners.begin(), owners.end(), replica) - owners.begin());
  }
  // Returns the number of the line along the axis that a replica of any process belongs to.
  int line_number(int replica) const { return core_.topology().line_number(axis(), replica); }
  // Returns slots of whole groups.
  Slots zeros() const {
    Slots whole;
    for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
      std::vector<torch::Tensor>& own = whole.emplace_back();
      for (const torch::Tensor& slot : updates_.front().slots()[g]) {
        own.push_back(torch::zeros({flat_.groups()[g].size}, slot.options().device(torch::kCPU)));
      }
    }
    return whole;
  }
  // Returns the bytes of an owner's part of the parameters, which its sums have, too.
  int64_t bytes_of_part(int owner) const {
    int64_t bytes = 0;
    for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
      bytes += plan_.size(g, owner) * static_cast<int64_t>(c10::elementSize(flat_.groups()[g].dtype));
    }
    return bytes;
  }
  // Returns a unit's slice in a flat tensor of its owner's shard.
  torch::Tensor part(const torch::Tensor& shard, std::size_t unit, int owner) const {
    return shard.narrow(0, plan_.at(unit, owner), plan_.units()[unit].slice(owner).size());
  }

  // Makes a replica's copy of the parameters what all owners have made of their slices.
  void gather_parameters(int me) const {
    for (const ShardUnit& unit : plan_.units()) {
      const torch::Tensor& copy = flat_.groups()[unit.group].copies[static_cast<std::size_t>(me)];
      const auto part_of = [&](int owner) { return copy.slice(0, unit.slice(owner).begin, unit.slice(owner).end); };
      const int own = line(me).rank();
      const std::vector<torch::Tensor> slices = line(me).all_gather(part_of(own));
      for (int owner = 0; owner < plan_.owners(); ++owner) {
        if (owner != own) part_of(owner).copy_(slices[static_cast<std::size_t>(owner)]);
      }
    }
  }

  void gather_slot(std::size_t group, std::size_t slot, std::map<int, Slots>& lines) const {
    std::vector<torch::Tensor> here;
    for (const ShardUpdate& update : updates_) here.push_back(update.slots()[group][slot].cpu());
    const std::vector<torch::Tensor> everywhere = core_.workers().world().all_gather(at::cat(here));
    for (std::size_t process = 0; process < everywhere.size(); ++process) {
      int64_t at = 0;
      for (const int replica : core_.topology().replicas_of(static_cast<int>(process))) {
        const int owner = owner_of(replica);
        const torch::Tensor shard = everywhere[process].narrow(0, at, plan_.size(group, owner));
        at += shard.numel();
        const auto line = lines.find(line_number(replica));
        if (line == lines.end()) continue;
        const torch::Tensor& whole = line->second[group][slot];
        for (std::size_t u = 0; u < plan_.units().size(); ++u) {
          if (plan_.units()[u].group != group) continue;
          const Slice slice = plan_.units()[u].slice(owner);
          whole.slice(0, slice.begin, slice.end).copy_(part(shard, u, owner));
        }
      }
    }
  }

  StrategyCore& core_;
  ShardPlan plan_;
  ScatteredGradients gradients_;
  std::optional<WatchedBackward> watched_;  // nothing where gradients leave after backward
  std::optional<CutLines> cuts_;            // nothing where no parameter is cut
  std::vector<ShardUpdate> updates_;        // [replica]
};

}  // namespace

std::unique_ptr<Exchange> make_sharded_exchange(const ExchangeParts& parts) {
  if (parts.rule.rule().takes_whole() && parts.flat.layout().cuts_any()) {
    const StrategyPlan& plan = parts.core.plan();
    fail<Unimplemented>("[strategy] ", plan.name, ": sharding.stage is ", plan.sharding.stage, ", and ",
                        parts.rule.name(), " updates whole parameters, but the layout cuts ",
                        parts.flat.layout().cuts().begin()->first);
  }
  return std::make_unique<ShardedExchange>(parts);
}

}  // namespace cohort
