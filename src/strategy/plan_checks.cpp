#include "strategy/plan_checks.h"

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/extension.h"
#include "base/fail.h"
#include "strategy/combinations.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

constexpr int kMostStage = 3;  // of sharding

// The replicas that the topology gives this process are those that the plan has devices for.
void require_topology(const StrategyPlan& plan) {
  const std::vector<int> own = plan.topology.replicas_of(plan.workers->rank());
  if (own.size() == plan.devices.size() && plan.topology.num_processes() == plan.workers->size()) return;
  fail<InvalidArgument>("[strategy] ", plan.name, ": the topology (", plan.topology.to_string(),
                        ") gives this process ", own.size(), " replicas, but there are ", plan.devices.size(),
                        " devices and ", plan.workers->size(), " processes");
}

void require_exchange(const StrategyPlan& plan) {
  const ExchangeOptions& exchange = plan.exchange;
  if (exchange.bytes_per_pack > 0 && exchange.num_packs != 1) {
    fail<InvalidArgument>("[strategy] ", plan.name, ": num_packs is ", exchange.num_packs, " and bytes_per_pack ",
                          exchange.bytes_per_pack, ", which replaces it; give one of them");
  }
  if (exchange.threads_per_replica < 0) {
    fail<InvalidArgument>("[strategy] ", plan.name, ": threads_per_replica is ", exchange.threads_per_replica,
                          ", wanted 0 (cores / replicas) or more");
  }
}

// What is said of units has a meaning in stage 3, and what is said of messages has none: these are the units.
void require_units(const StrategyPlan& plan) {
  const ShardingOptions& sharding = plan.sharding;
  const ExchangeOptions& exchange = plan.exchange;
  const ShardingOptions defaults;
  if (sharding.min_unit_bytes < 0) {
    fail<InvalidArgument>("[strategy] ", plan.name, ": sharding.min_unit_bytes is ", sharding.min_unit_bytes,
                          ", wanted 0 (every unit by itself) or more");
  }
  if (sharding.stage == 3) {
    if (exchange.num_packs == 1 && exchange.bytes_per_pack == 0) return;
    fail<InvalidArgument>("[strategy] ", plan.name, ": num_packs is ", exchange.num_packs, " and bytes_per_pack ",
                          exchange.bytes_per_pack, ", but the messages of sharding.stage 3 are its units, whose size ",
                          "sharding.min_unit_bytes says");
  }
  if (sharding.reshard_after_forward == defaults.reshard_after_forward &&
      sharding.min_unit_bytes == defaults.min_unit_bytes)
    return;
  fail<InvalidArgument>("[strategy] ", plan.name, ": sharding.reshard_after_forward is ",
                        sharding.reshard_after_forward ? "true" : "false", " and sharding.min_unit_bytes ",
                        sharding.min_unit_bytes, ", which are for stage 3, and sharding.stage is ", sharding.stage);
}

void require_sharding(const StrategyPlan& plan) {
  const ShardingOptions& sharding = plan.sharding;
  if (sharding.stage < 0 || sharding.stage > kMostStage) {
    fail<InvalidArgument>("[strategy] ", plan.name, ": sharding.stage is ", sharding.stage, ", wanted 0 (none) to ",
                          kMostStage);
  }
  if (sharding.stage == 0 && sharding.axis != ShardingOptions().axis) {
    fail<InvalidArgument>("[strategy] ", plan.name, ": sharding.axis is \"", sharding.axis,
                          "\" with stage 0, which shares nothing along it");
  }
  if (sharding.stage == 0 && sharding.offload_states) {
    fail<InvalidArgument>("[strategy] ", plan.name, ": sharding.offload_states is true with stage 0, which has no ",
                          "parts of states; wanted stage 1 to 3, also for a single replica");
  }
  require_units(plan);
  if (sharding.stage == 0 || plan.topology.axis(sharding.axis).role == AxisRole::kBatch) return;
  fail<InvalidArgument>("[strategy] ", plan.name, ": sharding.axis is \"", sharding.axis,
                        "\", which does not carry the batch (", plan.topology.to_string(), ")");
}

// Options of a hook or of local steps have a meaning if there are any.
void require_comm_hooks(const StrategyPlan& plan) {
  if (plan.exchange.power_sgd == PowerSgdOptions() && plan.local_sgd == LocalSgdOptions()) return;
  const auto& options = extension_of<CommHookOptions>(
      "comm_hooks", c10::str("[strategy] ", plan.name, ": options of power_sgd or local_sgd came"));
  options.check(plan);
}

}  // namespace

void require_possible(const StrategyPlan& plan) {
  require_topology(plan);
  require_exchange(plan);
  require_sharding(plan);
  require_comm_hooks(plan);
  require_combination(plan);
}

void check_partition_dims(std::string_view option, const std::vector<int64_t>& dims, int cores) {
  const bool positive = std::all_of(dims.begin(), dims.end(), [](int64_t parts) { return parts > 0; });
  const int64_t parts = c10::multiply_integers(dims);
  if (positive && parts == cores) return;
  fail<InvalidArgument>("[strategy] ", option, " is [", c10::Join(", ", dims), "], of which the product is ", parts,
                        ", wanted numbers above 0 whose product is the number of cores of a replica, ", cores);
}

}  // namespace cohort
