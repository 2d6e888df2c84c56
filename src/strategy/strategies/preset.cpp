#include "strategy/strategies/preset.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "base/fail.h"
#include "base/log.h"
#include "base/number_in.h"
#include "device/host_random.h"
#include "strategy/strategies/devices.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

// Says what an axis of a role divides, and which strategy takes it.
std::string_view said_of(AxisRole role) {
  if (role == AxisRole::kStage) return "the layers of the model; PipelineStrategy takes such a mesh";
  return role == AxisRole::kModel ? "parameters; MeshStrategy takes such a mesh"
                                  : "inputs; MeshStrategy takes such a mesh";
}

void require_roles(const StrategyPreset& preset) {
  for (const Axis& axis : preset.mesh->axes()) {
    const auto& taken = preset.divides;
    if (axis.role == AxisRole::kBatch || std::find(taken.begin(), taken.end(), axis.role) != taken.end()) continue;
    fail<InvalidArgument>("[strategy] ", preset.name, ": the axis \"", axis.name, "\" of the mesh (",
                          preset.mesh->to_string(), ") does not carry the batch but divides ", said_of(axis.role));
  }
}

// Checks that a process without a cluster has all devices.
void require_own(const StrategyPlan& plan, const StrategyPreset& preset) {
  for (int r = 0; r < plan.topology.size(); ++r) {
    if (plan.topology.place(r).process == 0) continue;
    fail<InvalidArgument>("[strategy] ", preset.name, ": ", plan.topology.place(r).device.to_string(), " of the mesh (",
                          preset.mesh->to_string(), ") belongs to another task, and there is no cluster with it");
  }
}

// Checks that the replicas of the workers, which have told of their devices, are those of the mesh.
void require_alike(const Topology& workers, const Topology& wanted, const StrategyPreset& preset) {
  for (int r = 0; r < std::max(workers.size(), wanted.size()); ++r) {
    const bool both = r < workers.size() && r < wanted.size();
    if (both && workers.place(r) == wanted.place(r)) continue;
    const Topology& longer = r < workers.size() ? workers : wanted;
    fail<InvalidArgument>("[strategy] ", preset.name, ": the mesh (", preset.mesh->to_string(), ") and the workers (",
                          workers.to_string(), ") differ from ", longer.place(r).device.to_string(), " on");
  }
}

std::optional<TaskId> task_of(const StrategyPreset& preset) {
  return preset.cluster ? preset.cluster->resolver->task() : std::nullopt;
}

ClusterSpec cluster_of(const StrategyPreset& preset) {
  return training_cluster(preset.name, preset.cluster->resolver->cluster_spec(), task_of(preset));
}

// The devices of a mesh in its order.
std::string agreed_text(const DeviceMesh& mesh) {
  std::vector<std::string> devices;
  for (const DeviceSpec& device : mesh.devices()) devices.push_back(device.to_string());
  return c10::str(mesh.to_string(), " of ", c10::Join(", ", devices));
}

std::string agreed_text(const ShardingOptions& sharding) {
  return c10::str("stage ", sharding.stage, " along ", sharding.axis,
                  sharding.reshard_after_forward ? "" : ", kept after forward", ", units of ", sharding.min_unit_bytes,
                  " bytes", sharding.offload_states ? ", offloaded" : "");
}

// The plan gets the group of its workers and the topology of data parallelism over their devices.
void join_workers(StrategyPlan& plan, const WorkerGroupOptions& options) {
  // Whoever waits for the replica that speaks to the other workers waits longer than that one does.
  plan.exchange.timeout =
      std::max(plan.exchange.timeout,
               options.communication.timeout + 2 * options.membership.heartbeat_timeout + std::chrono::seconds(30));
  const auto workers = std::make_shared<JoinedWorkers>(options);
  plan.topology = Topology::batch(workers->devices());
  plan.workers = workers;
}

}  // namespace

bool is_own(const StrategyPreset& preset, const DeviceSpec& device) {
  const TaskId own = task_of(preset).value_or(TaskId{.type = "localhost", .index = 0});
  return device.job == own.type && device.task == own.index;
}

std::vector<LogicalDevice> own_devices(const StrategyPreset& preset, const Topology& topology) {
  std::vector<std::string> names;
  for (int r = 0; r < topology.size(); ++r) {
    const DeviceSpec& device = topology.place(r).device;
    if (is_own(preset, device)) {
      names.push_back(device.short_form());
    } else if (!preset.cluster) {
      fail<InvalidArgument>("[strategy] ", preset.name, ": ", device.to_string(), " of the mesh (",
                            preset.mesh->to_string(), ") belongs to a task of a cluster; this strategy uses the ",
                            "devices of its own process only, the MultiWorker strategies those of a cluster");
    }
  }
  if (!names.empty()) return choose_devices(preset.name, names);
  const std::optional<TaskId> task = task_of(preset);
  fail<InvalidArgument>("[strategy] ", preset.name, ": the mesh (", preset.mesh->to_string(), ") has no device of ",
                        task ? task->to_string() : "this process");
}

StrategyPlan build_plan(const StrategyPreset& preset) {
  if (preset.mesh && !preset.devices.empty()) {
    fail<InvalidArgument>("[strategy] ", preset.name, ": ", preset.devices.size(), " devices came beside a mesh (",
                          preset.mesh->to_string(), "), which has its own; give one of them");
  }
  if (preset.mesh) require_roles(preset);
  if (preset.cluster) {
    require_known(preset.cluster->communication);
    (void)cluster_of(preset);
  }
  const std::optional<Topology> replicas =
      preset.replicas || !preset.mesh ? preset.replicas : std::optional(preset.mesh->topology());
  const LocalPlace place = preset.cluster ? local_place() : LocalPlace{};
  StrategyPlan plan = local_plan(preset.name, replicas ? own_devices(preset, *replicas)
                                                       : choose_worker_devices(preset.name, preset.devices, place));
  if (replicas) plan.topology = *replicas;
  plan.exchange = preset.exchange;
  plan.sharding = preset.sharding;
  plan.expects_workers = preset.cluster.has_value();
  return plan;
}

void enter_cluster(StrategyPlan& plan, const StrategyPreset& preset) {
  const ClusterSpec cluster = cluster_of(preset);
  if (cluster.empty()) {
    log().info("[strategy] {}: one worker, with the devices of this process", preset.name);
    require_own(plan, preset);
    return;
  }
  WorkerGroupOptions group{.cluster = cluster,
                           .task = *task_of(preset),
                           .devices = plan.devices,
                           .resolver = std::string(preset.cluster->resolver->name()),
                           .communication = preset.cluster->communication,
                           .membership = preset.cluster->membership,
                           .strategy = preset.name,
                           .alike = preset.alike};
  group.alike.emplace("mesh", preset.mesh ? agreed_text(*preset.mesh) : "none");
  group.alike.emplace("sharding", agreed_text(preset.sharding));
  const Topology wanted = plan.topology;
  join_workers(plan, group);
  if (!preset.mesh) return;
  require_alike(plan.topology, wanted, preset);
  plan.topology = wanted;
}

JoinedCore joined_core(StrategyPlan plan, const StrategyPreset& preset) {
  auto core = std::make_shared<StrategyCore>(std::move(plan));
  if (!preset.divides.empty()) {
    const std::string seed = core->text_from_chief(std::to_string(host_generator().current_seed()));
    core->set_seed(number_in<uint64_t>(seed, c10::str("[strategy] ", preset.name, ": the chief's seed")));
  }
  return {std::move(core), preset.cluster->resolver};
}

ClusterOptions resolved(ClusterOptions options) {
  if (!options.resolver) options.resolver = resolve_cluster();
  return options;
}

void leave_after_backward(const std::string& strategy, ClusterOptions& options) {
  CommunicationOptions& communication = options.communication;
  if (communication.overlap.value_or(false)) {
    fail<InvalidArgument>("[strategy] ", strategy, ": communication.overlap is true, but gradients leave after ",
                          "backward under this strategy");
  }
  if (communication.bytes_per_pack != 0) {
    fail<InvalidArgument>("[strategy] ", strategy, ": communication.bytes_per_pack is ", communication.bytes_per_pack,
                          "; gradients leave in the messages of exchange");
  }
  communication.overlap = false;
}

std::string agreed_text(const ExchangeOptions& exchange) {
  return c10::str(exchange.num_packs, " packs of ", exchange.bytes_per_pack, " bytes, compression ",
                  compression_of(exchange));
}

std::string compression_of(const ExchangeOptions& exchange) {
  const PowerSgdOptions& power_sgd = exchange.power_sgd;
  if (power_sgd == PowerSgdOptions()) return exchange.gradient_compression;
  return c10::str(exchange.gradient_compression, ", rank ", power_sgd.matrix_approximation_rank, " after ",
                  power_sgd.start_power_sgd_iter, " updates, rate ", power_sgd.min_compression_rate,
                  power_sgd.use_error_feedback ? "" : ", no error feedback",
                  power_sgd.warm_start ? "" : ", no warm start");
}

std::string agreed_text(const LayoutMap& layout) {
  std::string text;
  for (const auto& [pattern, axes] : layout.entries()) {
    text += c10::str(text.empty() ? "" : ", ", pattern, " {", c10::Join(", ", axes), "}");
  }
  return text;
}

}  // namespace cohort
