#include "train/engine/update_engine.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
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
  if (!asked || core.workers() != nullptr || core.plan().name == "multi_worker_mirrored") return;
  fail<InvalidArgument>("[strategy] ", core.plan().name, ": num_packs is ", exchange.num_packs, " and bytes_per_pack ",
                        exchange.bytes_per_pack, ", but there are no messages to pack gradients into: ", why);
}

}  // namespace

std::unique_ptr<UpdateEngine> make_update_engine(const MirroredModule& module, FlatParameters& flat,
                                                 const Optimizer& rule) {
  StrategyCore& core = *module.core();
  if (core.remote() != nullptr) {
    require_packs(core, "they go to the parameter servers by variable");
    return make_server_update(module, flat, rule);
  }
  const bool has_kernels = std::all_of(flat.groups().begin(), flat.groups().end(), [](const FlatGroup& group) {
    return group.dtype == torch::kFloat || group.dtype == torch::kDouble;
  });
  const bool slices = core.central() || core.cross_device_ops().name() == "ring" || core.num_local_replicas() == 1;
  const bool sharded = core.shares_memory() && has_kernels && slices;
  if (sharded || core.central() || core.num_local_replicas() == 1) {
    require_packs(core, core.num_local_replicas() == 1 ? "there is one replica" : "the replicas add them up in place");
  }
  if (sharded) return make_sharded_update(core, flat, rule);
  return make_replicated_update(core, flat, rule);
}

std::vector<std::vector<torch::Tensor>> make_slots(const FlatParameters& flat, const UpdateRule& rule,
                                                   std::size_t copy) {
  std::vector<std::vector<torch::Tensor>> slots;
  for (const FlatGroup& group : flat.groups()) {
    std::vector<torch::Tensor> own;
    for (std::size_t s = 0; s < rule.slots().size(); ++s) {
      // Half-precision parameters keep float32 slots.
      const bool half = group.dtype == torch::kHalf || group.dtype == torch::kBFloat16;
      own.push_back(torch::full({group.size}, rule.initial_slot_value(s),
                                group.copies[copy].options().dtype(half ? torch::kFloat : group.dtype)));
    }
    slots.push_back(std::move(own));
  }
  return slots;
}

std::vector<std::vector<Pack>> gradient_packs(const StrategyCore& core, const FlatParameters& flat) {
  const ExchangeOptions& exchange = core.plan().exchange;
  PackOptions options{.num_packs = exchange.num_packs, .bytes_per_pack = exchange.bytes_per_pack};
  const bool by_default = exchange.num_packs == 1 && exchange.bytes_per_pack == 0;
  const bool overlaps = core.workers() != nullptr && core.workers()->overlaps();
  // The first ones should leave soon, and large ones cost less.
  if (overlaps && by_default) options = {.bytes_per_pack = kLargeMessage, .first_bytes = kFirstMessage};
  std::vector<std::vector<Pack>> packs;
  for (const FlatGroup& group : flat.groups()) {
    std::vector<int64_t> offsets;
    for (const std::size_t p : group.members) offsets.push_back(flat.parameters()[p].offset);
    packs.push_back(plan_packs(offsets, group.size, static_cast<int64_t>(c10::elementSize(group.dtype)), options));
  }
  return packs;
}

double clip_factor(double squared_norm, double global_clipnorm) {
  if (global_clipnorm <= 0.0) return 1.0;
  const double norm = std::sqrt(squared_norm);
  // PyTorch's form; a NaN norm passes through, so that it is seen.
  const double factor = global_clipnorm / (norm + 1e-6);
  return factor < 1.0 || std::isnan(factor) ? factor : 1.0;
}

}  // namespace cohort
