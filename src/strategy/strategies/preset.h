// StrategyPreset: axes with roles, devices of one process or of several, and how states are kept. Each strategy with a
// name is one: build_plan() makes its plan, a wing adds how a model or its inputs are divided, and enter_cluster()
// finds the other processes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/device_mesh.h"
#include "cohort/parallel/axes.h"
#include "strategy/core.h"

namespace cohort {

struct StrategyPreset {
  std::string name;  // the name of the strategy, for messages
  // The devices of the replicas of this process, as MirroredOptions::devices.
  std::vector<std::string> devices = {};
  // The devices of all processes on named axes, instead of `devices`.
  std::optional<DeviceMesh> mesh = std::nullopt;
  // The things that axes of the mesh may divide beside the batch.
  std::vector<AxisRole> divides = {};
  // The replicas, where each has several devices of the mesh; otherwise each device has one.
  std::optional<Topology> replicas = std::nullopt;
  ExchangeOptions exchange = {};  // how gradients become sums
  ShardingOptions sharding = {};  // the states that replicas share
  // The processes, of which the devices of the mesh are; without them all devices are of this process. The resolver is
  // not null.
  std::optional<ClusterOptions> cluster = std::nullopt;
  // Facts that have to be the same on all workers, by their names, beside the mesh and the shared states.
  std::map<std::string, std::string> alike = {};
};

// Returns whether a device of the preset's mesh is of this process.
bool is_own(const StrategyPreset& preset, const DeviceSpec& device);
// Returns this process's devices in a topology of the preset's processes. InvalidArgument: there are none, or without a
// cluster one belongs to another process.
std::vector<LogicalDevice> own_devices(const StrategyPreset& preset, const Topology& topology);

// Returns the plan of a preset, whose processes have not met yet. InvalidArgument: both devices and a mesh came,
// an axis divides what the strategy does not, the cluster or the communication is malformed; see also own_devices().
StrategyPlan build_plan(const StrategyPreset& preset);

// Enters the preset's cluster: returns when all workers are there. InvalidArgument: they have other devices than the
// mesh, or differ in what has to be alike. Errors: see MultiWorkerMirroredStrategy.
void enter_cluster(StrategyPlan& plan, const StrategyPreset& preset);

// A strategy of several processes: its core, and what told the cluster.
using JoinedCore = std::pair<std::shared_ptr<StrategyCore>, ClusterResolverPtr>;
// Makes the core when the processes have met. Where axes divide more than the batch, replicas of a line may lie with
// several processes: all take the chief's seed then, so that those draw the same numbers.
JoinedCore joined_core(StrategyPlan plan, const StrategyPreset& preset);

// Returns the options with a resolver: resolve_cluster(), if they have none.
ClusterOptions resolved(ClusterOptions options);

// Sends gradients after backward, in the messages of ExchangeOptions. InvalidArgument: the options say something else.
void leave_after_backward(const std::string& strategy, ClusterOptions& options);

// Return facts as texts that workers compare: how gradients are packed and travel, how they travel, the parameters that
// are cut.
std::string agreed_text(const ExchangeOptions& exchange);
std::string compression_of(const ExchangeOptions& exchange);
std::string agreed_text(const LayoutMap& layout);

}  // namespace cohort
