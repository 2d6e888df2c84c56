// The table that chooses an exchange, and what all of them have in common.
#include "step/exchange/exchange.h"

#include <algorithm>

#include "base/access.h"
#include "base/extension.h"
#include "base/fail.h"
#include "collective/gradient_compression.h"
#include "collective/gradient_wire.h"
#include "ops/kernels/kernels.h"
#include "step/exchange/comm_hook.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

constexpr int64_t kFirstMessage = int64_t{1} << 20;  // bytes
constexpr int64_t kLargeMessage = int64_t{8} << 20;

// The exchanges of the core; those of wings are extensions.
constexpr ExchangeMaker kExchanges[] = {{GradientPath::kSharedMemory, make_shared_memory_exchange},
                                        {GradientPath::kOverWorkers, make_over_workers_exchange},
                                        {GradientPath::kMessages, make_communicator_exchange},
                                        {GradientPath::kParameterDevice, make_central_exchange}};

const ExchangeMaker& maker_of(const StrategyPlan& plan, GradientPath path) {
  for (const ExchangeMaker& each : kExchanges) {
    if (each.path == path) return each;
  }
  for (const ExchangeMaker& each : extensions<ExchangeMaker>()) {
    if (each.path == path) return each;
  }
  // The strategies of other paths are wings themselves.
  fail_without("sharding", "[strategy] ", plan.name, ": sharding.stage is ", plan.sharding.stage);
}

// Returns why there are no messages of gradients, or null: there are.
const char* no_messages(const StrategyCore& core, const PathChoice& choice) {
  if (core.divides_models() && !core.splits_batches()) return "all replicas compute with the same examples";
  return core.plan().expects_workers ? nullptr : choice.no_messages;
}

// Refuses what was said of messages where gradients do not become any.
void require_packs(const StrategyPlan& plan, const char* reason) {
  const ExchangeOptions& exchange = plan.exchange;
  const bool asked = exchange.num_packs != 1 || exchange.bytes_per_pack != 0;
  if (!asked || reason == nullptr) return;
  fail<InvalidArgument>("[strategy] ", plan.name, ": num_packs is ", exchange.num_packs, " and bytes_per_pack ",
                        exchange.bytes_per_pack, ", but there are no messages to pack gradients into: ", reason);
}

// Refuses what the approximation of gradients does not go with. What was lost of one is in units of its loss scale, and
// says nothing of one that is not finite.
void require_approximation(const StrategyPlan& plan, const Optimizer& rule) {
  if (rule.gradient().loss_scale) {
    fail<InvalidArgument>("[optimizer] ", rule.name(), ": has a loss_scale, and gradient_compression of ", plan.name,
                          " is ", plan.exchange.gradient_compression,
                          ", which keeps what gradients lose; bfloat16 and float16 take one");
  }
}

// Refuses a compression where gradients do not travel.
void require_compression(const StrategyPlan& plan, const char* reason) {
  if (!GradientWire(plan.exchange.gradient_compression).compresses() || reason == nullptr) return;
  fail<InvalidArgument>("[strategy] ", plan.name, ": gradient_compression is ", plan.exchange.gradient_compression,
                        ", but there are no messages of gradients: ", reason);
}

// Refuses local steps where they are not built.
void require_local_steps(const StrategyPlan& plan, const PathChoice& choice) {
  if (plan.local_sgd.sync_every == 0 || choice.path == GradientPath::kLocalSteps) return;
  fail<Unimplemented>("[strategy] ", plan.name, ": local_sgd.sync_every is ", plan.local_sgd.sync_every,
                      ", which is for replicas on CPUs that add up float32 or float64 gradients in memory");
}

}  // namespace

void Exchange::backward(Replica& replica, const torch::Tensor& loss) {
  flat_.backward(replica.local_id(), loss);
}

ExchangeTimeline Exchange::timeline() const {
  return {};
}

std::vector<Exchange::Slots> Exchange::slots_of_all() const {
  std::vector<Slots> all;
  for (std::size_t r = 0; r < flat_.groups().front().copies.size(); ++r) {
    all.push_back(slots_of(static_cast<int>(r)));
  }
  return all;
}

void Exchange::set_values(int local_id, const std::vector<torch::Tensor>& values) {
  for (std::size_t g = 0; g < values.size(); ++g) {
    flat_.groups()[g].copies[static_cast<std::size_t>(local_id)].copy_(values[g]);
  }
}

std::optional<int64_t> Exchange::iterations() const {
  return std::nullopt;
}

void Exchange::set_learning_rate(const Schedule& /*schedule*/) {}

std::unique_ptr<Exchange> make_exchange(const MirroredModule& module, FlatParameters& flat, const Optimizer& rule) {
  StrategyCore& core = *Access::core(module);
  const bool has_kernels = std::all_of(flat.groups().begin(), flat.groups().end(),
                                       [](const FlatGroup& group) { return kernels::has_kernels(group.dtype); });
  const PathChoice choice = core.gradient_path(has_kernels);
  require_packs(core.plan(), no_messages(core, choice));
  require_compression(core.plan(), no_messages(core, choice));
  require_local_steps(core.plan(), choice);
  if (GradientWire(core.plan().exchange.gradient_compression).has_hook()) require_approximation(core.plan(), rule);
  return maker_of(core.plan(), choice.path).make({core, module, flat, rule, no_messages(core, choice)});
}

std::unique_ptr<CommHook> make_comm_hook(const FlatParameters& flat, const ExchangeOptions& options, int local_id) {
  const GradientCompression& compression = gradient_compression(options.gradient_compression);
  return compression.make == nullptr ? nullptr : compression.make(flat, options, local_id);
}

int64_t Exchange::parameter_bytes() const {
  int64_t bytes = 0;
  for (const FlatGroup& group : flat_.groups()) bytes += static_cast<int64_t>(group.copies.front().nbytes());
  return bytes;
}

int64_t Exchange::bytes_of(const Slots& slots) {
  int64_t bytes = 0;
  for (const std::vector<torch::Tensor>& group : slots) {
    for (const torch::Tensor& slot : group) bytes += static_cast<int64_t>(slot.nbytes());
  }
  return bytes;
}

// A replica has its own copy of all of it.
StateBytes Exchange::state_bytes() const {
  return {.parameters = parameter_bytes(), .gradients = parameter_bytes(), .slots = bytes_of(slots())};
}

std::vector<std::vector<Pack>> gradient_packs(const StrategyCore& core, const FlatParameters& flat,
                                              int64_t bytes_by_default) {
  const ExchangeOptions& exchange = core.plan().exchange;
  PackOptions options{.num_packs = exchange.num_packs, .bytes_per_pack = exchange.bytes_per_pack};
  const bool by_default = exchange.num_packs == 1 && exchange.bytes_per_pack == 0;
  if (by_default) options.bytes_per_pack = bytes_by_default;
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
