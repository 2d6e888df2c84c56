#include "cohort/cluster/xla_strategy.h"

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>

#include "base/access.h"
#include "base/fail.h"
#include "device/xla/backend.h"
#include "device/xla/find_plugin.h"
#include "strategy/strategies/absent.h"
#include "strategy/strategies/devices.h"

namespace cohort {

namespace {

// Returns the devices that the open plugin has in this process.
std::vector<LogicalDevice> devices_of(const XlaClient& client) {
  return list_logical_devices(client.platform() == "tpu" ? "TPU" : "XLA");
}

// The devices of each replica.
using Cores = std::vector<std::vector<LogicalDevice>>;

// Returns the number of cores that the options ask for.
int cores_of(const std::string& speaker, const XlaStrategyOptions& options) {
  if (options.num_cores_per_replica < 0) {
    fail<InvalidArgument>("[strategy] ", speaker, ": num_cores_per_replica is ", options.num_cores_per_replica,
                          ", wanted 0 (as input_partition_dims says) or more");
  }
  if (options.num_cores_per_replica > 0) return options.num_cores_per_replica;
  const auto& dims =
      options.input_partition_dims.empty() ? options.eval_input_partition_dims : options.input_partition_dims;
  return static_cast<int>(std::max<int64_t>(1, c10::multiply_integers(dims)));
}

StrategyPlan plan_of(const std::string& name, const std::string& speaker, const Cores& replicas,
                     const XlaStrategyOptions& options) {
  std::vector<LogicalDevice> devices;
  std::vector<std::vector<int>> indices;
  for (const std::vector<LogicalDevice>& cores : replicas) {
    devices.push_back(cores.front());
    std::vector<int>& own = indices.emplace_back();
    for (const LogicalDevice& core : cores) own.push_back(core.torch_device.index());
  }
  const int count = static_cast<int>(replicas.front().size());
  for (const auto& [option, dims] : {std::pair("input_partition_dims", options.input_partition_dims),
                                     std::pair("eval_input_partition_dims", options.eval_input_partition_dims)}) {
    if (!dims.empty()) check_partition_dims(speaker + ": " + option, dims, count);
  }
  StrategyPlan plan = local_plan(name, std::move(devices));
  plan.exchange.timeout = options.timeout;
  plan.loop_input_bytes = options.loop_input_bytes;
  plan.cores = {.count = count,
                .train_dims = options.input_partition_dims,
                .eval_dims = options.eval_input_partition_dims.empty() ? options.input_partition_dims
                                                                       : options.eval_input_partition_dims,
                .held = hold_xla_cores(indices)};
  return plan;
}

// Opens the plugin and returns the devices that the options name.
std::vector<LogicalDevice> open_devices(const std::string& speaker, const XlaStrategyOptions& options) {
  if (options.num_devices < 0) {
    fail<InvalidArgument>("[strategy] ", speaker, ": num_devices is ", options.num_devices,
                          ", wanted 0 (all devices) or more");
  }
  if (options.loop_input_bytes < 1) {
    fail<InvalidArgument>("[strategy] ", speaker, ": loop_input_bytes is ", options.loop_input_bytes,
                          ", wanted 1 or more");
  }
  XlaOpenOptions open{.plugin = options.plugin,
                      .source = speaker,
                      .options = parse_xla_options(options.plugin_options),
                      .matmul_precision = options.matmul_precision};
  if (options.num_devices > 0 && find_xla_plugin(open.plugin, speaker + ": plugin").name == "cpu") {
    open.otherwise.emplace("cpu_device_count", int64_t{options.num_devices});
  }
  const XlaClientPtr client = open_xla(open);
  std::vector<LogicalDevice> devices = devices_of(*client);
  if (options.num_devices > static_cast<int>(devices.size())) {
    fail<InvalidArgument>("[strategy] ", speaker, ": num_devices is ", options.num_devices, ", but the plugin ",
                          client->plugin().name(), " has ", devices.size(), " in this process");
  }
  if (options.num_devices > 0) devices.resize(static_cast<std::size_t>(options.num_devices));
  return devices;
}

// Returns the number of replicas that some devices are.
int replicas_of(const std::string& speaker, const XlaStrategyOptions& options, int devices) {
  const int cores = cores_of(speaker, options);
  if (devices < cores || (options.num_devices > 0 && devices % cores != 0)) {
    fail<InvalidArgument>("[strategy] ", speaker, ": a replica has ", cores, " core(s), and there are ", devices,
                          " devices, wanted a multiple of it");
  }
  return devices / cores;
}

StrategyPlan xla_plan(const std::string& name, const std::string& speaker, const XlaStrategyOptions& options) {
  const std::vector<LogicalDevice> devices = open_devices(speaker, options);
  const int replicas = replicas_of(speaker, options, static_cast<int>(devices.size()));
  const int cores = cores_of(speaker, options);
  Cores list;
  for (auto first = devices.begin(); static_cast<int>(list.size()) < replicas; first += cores) {
    list.emplace_back(first, first + cores);
  }
  return plan_of(name, speaker, list, options);
}

void require_own_tpu(const TPUClusterResolver* resolver) {
  (resolver != nullptr ? *resolver : TPUClusterResolver()).require_local();
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

// Returns the cores of the replicas.
Cores assigned(const DeviceAssignment& assignment, const XlaClient& client) {
  const TpuTopology here = topology_of(client);
  const TpuTopology& wanted = assignment.topology();
  if (wanted.mesh_shape() != here.mesh_shape() || wanted.device_coordinates() != here.device_coordinates() ||
      here.num_tasks() != 1) {
    fail<InvalidArgument>("[strategy] TPUStrategy: device_assignment is for a mesh of [",
                          c10::Join(",", wanted.mesh_shape()), "], the cores of this process are another one, of [",
                          c10::Join(",", here.mesh_shape()), "]; tpu_initialize() tells it");
  }
  const std::vector<LogicalDevice> all = devices_of(client);
  Cores replicas;
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    std::vector<LogicalDevice>& own = replicas.emplace_back();
    for (int core = 0; core < assignment.num_cores_per_replica(); ++core) {
      own.push_back(all[static_cast<std::size_t>(assignment.tpu_ordinal(replica, core))]);
    }
  }
  return replicas;
}

StrategyPlan tpu_plan(const TPUClusterResolver* resolver, const TPUStrategyOptions& options) {
  const std::string speaker = "TPUStrategy";
  require_own_tpu(resolver);
  if (options.device_assignment && options.num_devices != 0) {
    fail<InvalidArgument>("[strategy] TPUStrategy: num_devices is ", options.num_devices,
                          ", and device_assignment says which devices are used; give one of them");
  }
  const XlaStrategyOptions plain{.plugin = options.plugin,
                                 .num_devices = options.num_devices,
                                 .plugin_options = options.plugin_options,
                                 .matmul_precision = options.matmul_precision,
                                 .input_partition_dims = options.input_partition_dims,
                                 .eval_input_partition_dims = options.eval_input_partition_dims,
                                 .timeout = options.timeout,
                                 .loop_input_bytes = options.loop_input_bytes};
  const int cores = cores_of(speaker, plain);
  if (!options.device_assignment && cores == 1) return xla_plan("tpu", speaker, plain);
  const int devices = static_cast<int>(open_devices(speaker, plain).size());
  const XlaClientPtr client = open_xla({.plugin = options.plugin, .source = speaker});
  if (options.device_assignment) return plan_of("tpu", speaker, assigned(*options.device_assignment, *client), plain);
  const TpuTopology topology = topology_of(*client);
  const auto assignment = DeviceAssignment::build(topology, {.computation_shape = computation_shape_of(topology, cores),
                                                             .num_replicas = replicas_of(speaker, plain, devices)});
  return plan_of("tpu", speaker, assigned(assignment, *client), plain);
}

}  // namespace

Strategy absent_strategy(std::shared_ptr<record::GraphRunner> runner, const std::vector<int64_t>& partition_dims) {
  open_absent_xla(std::move(runner));
  StrategyPlan plan = local_plan("xla", list_logical_devices("XLA"));
  plan.cores.count = static_cast<int>(c10::multiply_integers(partition_dims));
  plan.cores.train_dims = plan.cores.eval_dims = partition_dims;
  return Access::make<Strategy>(std::make_shared<StrategyCore>(std::move(plan)));
}

XlaStrategy::XlaStrategy(const XlaStrategyOptions& options)
    : Strategy(std::make_shared<StrategyCore>(xla_plan("xla", "XlaStrategy", options))) {}

int XlaStrategy::num_cores_per_replica() const {
  return Access::core(*this)->plan().cores.count;
}

torch::Tensor XlaStrategy::experimental_split_to_logical_devices(
    const torch::Tensor& tensor, const std::vector<int64_t>& partition_dimensions) const {
  constexpr std::string_view kName = "experimental_split_to_logical_devices";
  check_partition_dims(c10::str(kName, ": partition_dimensions"), partition_dimensions, num_cores_per_replica());
  return split_among_cores(*Access::core(*this), tensor, partition_dimensions, kName);
}

torch::Tensor XlaStrategy::experimental_replicate_to_logical_devices(const torch::Tensor& tensor) const {
  return split_among_cores(*Access::core(*this), tensor,
                           std::vector<int64_t>(static_cast<std::size_t>(tensor.dim()), 1),
                           "experimental_replicate_to_logical_devices");
}

torch::Tensor XlaStrategy::experimental_assign_to_logical_device(const torch::Tensor& tensor,
                                                                 int logical_device_id) const {
  const int cores = num_cores_per_replica();
  if (logical_device_id < 0 || logical_device_id >= cores) {
    fail<InvalidArgument>("[strategy] experimental_assign_to_logical_device got the logical device ", logical_device_id,
                          ", but a replica has ", cores);
  }
  if (cores == 1) return tensor;
  fail<Unimplemented>("[strategy] experimental_assign_to_logical_device: the ", cores,
                      " cores of a replica run one program together, so that no core has a tensor to itself; use "
                      "experimental_split_to_logical_devices or experimental_replicate_to_logical_devices");
}

TpuTopology tpu_initialize(const std::shared_ptr<TPUClusterResolver>& resolver, const std::string& plugin,
                           const std::string& plugin_options) {
  require_own_tpu(resolver.get());
  return topology_of(
      *open_xla({.plugin = plugin, .source = "tpu_initialize", .options = parse_xla_options(plugin_options)}));
}

TPUStrategy::TPUStrategy(const std::shared_ptr<TPUClusterResolver>& resolver, const TPUStrategyOptions& options)
    : XlaStrategy(std::make_shared<StrategyCore>(tpu_plan(resolver.get(), options))) {}

}  // namespace cohort
