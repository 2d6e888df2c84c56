#include "step/exchange/exchange.h"

#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "base/kernels/kernels.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

constexpr int64_t kFirstMessage = int64_t{1} << 20;  // bytes
constexpr int64_t kLargeMessage = int64_t{8} << 20;

// Refuses what was said of messages where gradients do not become any.
void require_packs(const StrategyCore& core, const char* why) {
  const ExchangeOptions& exchange = core.plan().exchange;
  // Several workers may have turned out to be one.
  const bool asked = exchange.num_packs != 1 || exchange.bytes_per_pack != 0;
  if (!asked || core.num_workers() > 1 || core.plan().name == "multi_worker_mirrored") return;
  fail<InvalidArgument>("[strategy] ", core.plan().name, ": num_packs is ", exchange.num_packs, " and bytes_per_pack ",
                        exchange.bytes_per_pack, ", but there are no messages to pack gradients into: ", why);
}

}  // namespace

void Exchange::backward(Replica& /*replica*/, const torch::Tensor& loss) {
  loss.backward();
}

ExchangeTimeline Exchange::timeline() const {
  return {};
}

std::optional<int64_t> Exchange::iterations() const {
  return std::nullopt;
}

void Exchange::set_learning_rate(const Schedule& /*schedule*/) {}

std::unique_ptr<Exchange> make_exchange(const MirroredModule& module, FlatParameters& flat, const Optimizer& rule) {
  StrategyCore& core = *Access::core(module);
  if (core.remote() != nullptr) {
    require_packs(core, "they go to the parameter servers by variable");
    return make_servers_exchange(module, flat, rule);
  }
  const bool has_kernels = std::all_of(flat.groups().begin(), flat.groups().end(),
                                       [](const FlatGroup& group) { return kernels::has_kernels(group.dtype); });
  const bool one_replica = core.num_local_replicas() == 1;
  const bool in_place = core.central() || core.cross_device_ops().name() == "ring" || one_replica;
  const bool shared_memory = core.shares_memory() && has_kernels && in_place;
  if (shared_memory || core.central() || one_replica) {
    require_packs(core, one_replica ? "there is one replica" : "the replicas add them up in place");
  }
  if (shared_memory) return make_shared_memory_exchange(core, flat, rule);
  if (core.central()) return make_central_exchange(core, flat, rule);
  return make_communicator_exchange(core, flat, rule);
}

std::vector<std::vector<Pack>> gradient_packs(const StrategyCore& core, const FlatParameters& flat) {
  const ExchangeOptions& exchange = core.plan().exchange;
  PackOptions options{.num_packs = exchange.num_packs, .bytes_per_pack = exchange.bytes_per_pack};
  const bool by_default = exchange.num_packs == 1 && exchange.bytes_per_pack == 0;
  // The first ones should leave soon, and large ones cost less.
  if (core.workers().overlaps() && by_default)
    options = {.bytes_per_pack = kLargeMessage, .first_bytes = kFirstMessage};
  std::vector<std::vector<Pack>> packs;
  for (const FlatGroup& group : flat.groups()) {
    std::vector<int64_t> offsets;
    for (const std::size_t p : group.members) offsets.push_back(flat.parameters()[p].offset);
    packs.push_back(plan_packs(offsets, group.size, static_cast<int64_t>(c10::elementSize(group.dtype)), options));
  }
  return packs;
}

}  // namespace cohort
