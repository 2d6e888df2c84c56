// The ways in which a strategy finds the workers of a cluster and its devices among theirs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_spec.h"
#include "cohort/device_mesh.h"
#include "cohort/exchange_options.h"
#include "strategy/core.h"
#include "strategy/worker_group.h"

namespace cohort {

// Returns the devices of a task in a mesh, as devices of this process; without a task, those of this process.
// InvalidArgument: there are none.
std::vector<std::string> devices_in(const std::string& strategy, const DeviceMesh& mesh,
                                    const std::optional<TaskId>& task);

// Return what workers have to agree on, as texts that they compare: the devices of a mesh in its order, and how
// gradients are packed and travel.
std::string agreed_text(const DeviceMesh& mesh);
std::string agreed_text(const ExchangeOptions& exchange);
std::string agreed_text(const ShardingOptions& sharding);
std::string agreed_text(const LayoutMap& layout);
// Says how gradients travel, which the workers have to agree on.
std::string compression_of(const ExchangeOptions& exchange);

// Enters a cluster: the plan gets the group of its workers and the topology of data parallelism over their devices.
void join_workers(StrategyPlan& plan, const WorkerGroupOptions& options);

// Seeds the replicas with the chief's seed, so that those of a line through several workers draw the same numbers;
// collective.
void take_seed_of_chief(StrategyCore& core);

// Lays the plan's replicas out on a mesh. InvalidArgument: it has other devices than the workers.
void take_mesh(StrategyPlan& plan, const DeviceMesh& mesh);

}  // namespace cohort
