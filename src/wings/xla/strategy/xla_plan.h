// The parts of the plans of XlaStrategy and TPUStrategy.
#pragma once

#include <string>
#include <vector>

#include "cohort/cluster/xla_strategy.h"
#include "strategy/core.h"
#include "wings/xla/device/backend.h"

namespace cohort {

// The devices of each replica: its cores.
using ReplicaDevices = std::vector<std::vector<LogicalDevice>>;

// Returns the devices that the open plugin has in this process.
std::vector<LogicalDevice> devices_of(const XlaClient& client);
// Returns the numbers of devices: xla:[replica][core].
std::vector<std::vector<int>> indices_of(const ReplicaDevices& replicas);
// Makes replicas of devices that follow each other.
ReplicaDevices in_a_row(const std::vector<LogicalDevice>& devices, int replicas, int cores);

// Returns the number of cores that the options ask for.
int cores_of(const std::string& speaker, const XlaStrategyOptions& options);
// Returns the number of replicas that some devices are.
int replicas_of(const std::string& speaker, const XlaStrategyOptions& options, int devices);
// Fails if a number among the options makes no sense.
void check_counts(const std::string& speaker, const XlaStrategyOptions& options);

XlaOpenOptions open_options(const std::string& speaker, const XlaStrategyOptions& options);
// Opens the plugin and returns the devices that the options name.
std::vector<LogicalDevice> open_devices(const std::string& speaker, const XlaStrategyOptions& options);

// Returns the plan for replicas of this process alone.
StrategyPlan plan_of(const std::string& name, const std::string& speaker, const ReplicaDevices& replicas,
                     const XlaStrategyOptions& options);
StrategyPlan xla_plan(const std::string& name, const std::string& speaker, const XlaStrategyOptions& options);

}  // namespace cohort
