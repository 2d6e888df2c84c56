// TPUStrategy: the devices of libtpu, which are those of this process or, in a pod, of several.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/fail.h"
#include "cohort/cluster/xla_strategy.h"
#include "strategy/strategies/devices.h"
#include "wings/xla/strategy/pod.h"
#include "wings/xla/strategy/xla_plan.h"

namespace cohort {

namespace {

constexpr const char* kSpeaker = "TPUStrategy";

TPUClusterResolver resolver_of(const TPUClusterResolver* resolver) {
  TPUClusterResolver own = resolver != nullptr ? *resolver : TPUClusterResolver();
  own.require_local();
  return own;
}

// Returns where the devices of a client are: x, y, z and the core. A device without coordinates is at its number.
TpuTopology topology_of(const XlaClient& client) {
  TpuCoordinates mesh;
  std::map<int, std::vector<TpuCoordinates>> tasks;
  for (const XlaDevice& device : client.devices()) {
    TpuCoordinates at = device.coordinates.empty() ? TpuCoordinates{device.id} : device.coordinates;
    if (at.size() < 3) at.resize(3);
    at.push_back(device.core_on_chip);
    if (mesh.size() < at.size()) mesh.resize(at.size(), 1);
    for (std::size_t i = 0; i < at.size(); ++i) mesh[i] = std::max(mesh[i], at[i] + 1);
    tasks[device.process].push_back(std::move(at));
  }
  std::vector<std::vector<TpuCoordinates>> list;
  for (auto& [process, cores] : tasks) list.push_back(std::move(cores));
  return {std::move(mesh), std::move(list)};
}

// Returns the number of this process among those that drive devices, as topology_of() has them.
int own_task(const XlaClient& client) {
  std::set<int> below;
  for (const XlaDevice& device : client.devices()) {
    if (device.process < client.process()) below.insert(device.process);
  }
  return static_cast<int>(below.size());
}

// Returns the cores of those replicas that are this process's.
ReplicaDevices assigned(const DeviceAssignment& assignment, const XlaClient& client) {
  const TpuTopology here = topology_of(client);
  const TpuTopology& wanted = assignment.topology();
  if (wanted.mesh_shape() != here.mesh_shape() || wanted.device_coordinates() != here.device_coordinates()) {
    fail<InvalidArgument>("[strategy] TPUStrategy: device_assignment is for a mesh of [",
                          c10::Join(",", wanted.mesh_shape()), "], the cores of this process are another one, of [",
                          c10::Join(",", here.mesh_shape()), "]; tpu_initialize() tells it");
  }
  const std::vector<LogicalDevice> all = devices_of(client);
  const int task = own_task(client);
  ReplicaDevices replicas;
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    std::vector<LogicalDevice> own;
    for (int core = 0; core < assignment.num_cores_per_replica(); ++core) {
      if (assignment.task_ordinal(replica, core) != task) continue;
      own.push_back(all[static_cast<std::size_t>(assignment.tpu_ordinal(replica, core))]);
    }
    if (own.empty()) continue;
    if (static_cast<int>(own.size()) < assignment.num_cores_per_replica()) {
      fail<InvalidArgument>("[strategy] TPUStrategy: the cores of replica ", replica,
                            " are devices of several processes; a replica is recorded by one, so its cores have to be "
                            "that one's");
    }
    replicas.push_back(std::move(own));
  }
  return replicas;
}

XlaStrategyOptions plain_options(const TPUStrategyOptions& options) {
  return {.plugin = options.plugin,
          .num_devices = options.num_devices,
          .plugin_options = options.plugin_options,
          .matmul_precision = options.matmul_precision,
          .input_partition_dims = options.input_partition_dims,
          .eval_input_partition_dims = options.eval_input_partition_dims,
          .timeout = options.timeout,
          .loop_input_bytes = options.loop_input_bytes,
          .kept_programs = options.kept_programs};
}

// Returns the devices of this process's replicas, where `count` devices of all processes are used.
ReplicaDevices choose(const TPUStrategyOptions& options, const XlaClient& client, int count) {
  const XlaStrategyOptions plain = plain_options(options);
  if (options.device_assignment) return assigned(*options.device_assignment, client);
  const int cores = cores_of(kSpeaker, plain);
  const TpuTopology topology = topology_of(client);
  const auto assignment = DeviceAssignment::build(topology, {.computation_shape = computation_shape_of(topology, cores),
                                                             .num_replicas = replicas_of(kSpeaker, plain, count)});
  return assigned(assignment, client);
}

// Returns the ids of the devices of the replicas.
std::vector<std::vector<int>> ids_of(const ReplicaDevices& replicas, const XlaClient& client) {
  std::vector<std::vector<int>> ids = indices_of(replicas);
  for (std::vector<int>& cores : ids) {
    for (int& core : cores) core = client.local_devices()[static_cast<std::size_t>(core)];
  }
  return ids;
}

std::shared_ptr<JoinedWorkers> join(const Pod& pod, const StrategyPlan& plan, const TPUStrategyOptions& options,
                                    const XlaClient& client, const std::vector<std::vector<int>>& ids) {
  CommunicationOptions communication{.implementation = "ring"};  // what is said between launches is short
  communication.overlap = false;
  communication.shared_memory = false;
  communication.timeout = options.timeout;
  return std::make_shared<JoinedWorkers>(WorkerGroupOptions{
      .cluster = pod.cluster,
      .task = pod.task,
      .devices = plan.devices,
      .communication = communication,
      .membership = options.membership,
      .strategy = "tpu",
      .entered = pod.membership,
      .alike = {{"cores of a replica", std::to_string(plan.cores.count)},
                {"input_partition_dims", c10::str(c10::Join(",", plan.cores.train_dims))},
                {"matmul_precision", options.matmul_precision},
                {"plugin",
                 c10::str(client.platform(), " ", client.platform_version(), ", PJRT ", client.plugin().version())}},
      .told = nlohmann::json(ids).dump(),
      .in_place = GradientPath::kRecorded});
}

// Makes the replicas of all processes those of one program. Replicas are numbered process by process.
void connect(StrategyPlan& plan, const Pod& pod, const TPUStrategyOptions& options, const XlaClient& client,
             const ReplicaDevices& replicas) {
  const auto workers = join(pod, plan, options, client, ids_of(replicas, client));
  XlaPod all;
  for (int rank = 0; rank < static_cast<int>(workers->told().size()); ++rank) {
    if (rank == workers->rank()) all.first = static_cast<int>(all.replicas.size());
    const auto ids =
        nlohmann::json::parse(workers->told()[static_cast<std::size_t>(rank)]).get<std::vector<std::vector<int>>>();
    all.replicas.insert(all.replicas.end(), ids.begin(), ids.end());
  }
  for (const std::vector<int>& cores : indices_of(replicas)) all.local.push_back(cores.front());
  all.hosts = make_pod_hosts(workers);
  struct Held {
    std::shared_ptr<const void> cores;
    std::shared_ptr<const void> pod;
  };
  const auto runner = open_xla_runner();
  plan.cores.held = std::make_shared<Held>(Held{.cores = plan.cores.held, .pod = runner->hold_pod(std::move(all))});
  plan.topology = Topology::batch(workers->devices());
  plan.workers = workers;
  plan.records_with_others = true;
  // Whoever waits for the replica that speaks to the other processes waits longer than that one does.
  plan.exchange.timeout = options.timeout + 2 * options.membership.heartbeat_timeout + std::chrono::seconds(30);
  end_stuck_process(*pod.membership, options.lost_host_limit);
}

StrategyPlan pod_plan(const Pod& pod, const TPUStrategyOptions& options) {
  const XlaStrategyOptions plain = plain_options(options);
  check_counts(kSpeaker, plain);
  XlaOpenOptions open = open_options(kSpeaker, plain);
  open.processes = pod.processes;
  const XlaClientPtr client = open_xla(open);
  check_pod(kSpeaker, *client, pod);
  const int count = static_cast<int>(client->devices().size());
  if (options.num_devices != 0 && options.num_devices != count) {
    fail<InvalidArgument>("[strategy] TPUStrategy: num_devices is ", options.num_devices, ", but the ",
                          pod.processes->count(), " processes of the pod have ", count,
                          " devices, all of which are used; leave it out");
  }
  const ReplicaDevices replicas = choose(options, *client, count);
  if (replicas.empty()) {
    fail<InvalidArgument>("[strategy] TPUStrategy: device_assignment has no replica for ", pod.task.to_string(),
                          "; every process of a pod needs one");
  }
  StrategyPlan plan = plan_of("tpu", kSpeaker, replicas, plain);
  connect(plan, pod, options, *client, replicas);
  return plan;
}

StrategyPlan tpu_plan(const TPUClusterResolver* resolver, const TPUStrategyOptions& options) {
  if (options.device_assignment && options.num_devices != 0) {
    fail<InvalidArgument>("[strategy] TPUStrategy: num_devices is ", options.num_devices,
                          ", and device_assignment says which devices are used; give one of them");
  }
  if (const std::optional<Pod> pod = enter_pod(kSpeaker, resolver_of(resolver), options.membership)) {
    return in_pod(*pod, [&] { return pod_plan(*pod, options); });
  }
  const XlaStrategyOptions plain = plain_options(options);
  const int count = static_cast<int>(open_devices(kSpeaker, plain).size());
  const XlaClientPtr client = open_xla({.plugin = options.plugin, .source = kSpeaker});
  check_pod(kSpeaker, *client, std::nullopt);
  if (!options.device_assignment && cores_of(kSpeaker, plain) == 1) return xla_plan("tpu", kSpeaker, plain);
  return plan_of("tpu", kSpeaker, choose(options, *client, count), plain);
}

}  // namespace

TpuTopology tpu_initialize(const std::shared_ptr<TPUClusterResolver>& resolver, const std::string& plugin,
                           const std::string& plugin_options, const MembershipOptions& membership) {
  const std::string speaker = "tpu_initialize";
  const std::optional<Pod> pod = enter_pod(speaker, resolver_of(resolver.get()), membership);
  const auto open = [&] {
    const XlaClientPtr client = open_xla({.plugin = plugin,
                                          .source = speaker,
                                          .options = parse_xla_options(plugin_options),
                                          .processes = pod ? pod->processes : nullptr});
    check_pod(speaker, *client, pod);
    if (pod) keep_pod(*pod);
    return topology_of(*client);
  };
  return pod ? in_pod(*pod, open) : open();
}

TPUStrategy::TPUStrategy(const std::shared_ptr<TPUClusterResolver>& resolver, const TPUStrategyOptions& options)
    : XlaStrategy(std::make_shared<StrategyCore>(tpu_plan(resolver.get(), options))) {}

}  // namespace cohort
