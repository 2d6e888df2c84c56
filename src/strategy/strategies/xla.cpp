#include "cohort/cluster/xla_strategy.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdlib>
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

StrategyPlan xla_plan(const std::string& name, const std::string& speaker, const XlaStrategyOptions& options) {
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
  StrategyPlan plan = local_plan(name, std::move(devices));
  plan.exchange.timeout = options.timeout;
  plan.loop_input_bytes = options.loop_input_bytes;
  return plan;
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

// Returns the devices in the order of the replicas that they are.
std::vector<LogicalDevice> assigned(const DeviceAssignment& assignment, const XlaClient& client) {
  if (assignment.num_cores_per_replica() != 1) {
    fail<Unimplemented>("[strategy] TPUStrategy: device_assignment has ", assignment.num_cores_per_replica(),
                        " cores for each replica; replicas of several cores are not there yet");
  }
  const TpuTopology here = topology_of(client);
  const TpuTopology& wanted = assignment.topology();
  if (wanted.mesh_shape() != here.mesh_shape() || wanted.device_coordinates() != here.device_coordinates() ||
      here.num_tasks() != 1) {
    fail<InvalidArgument>("[strategy] TPUStrategy: device_assignment is for a mesh of [",
                          c10::Join(",", wanted.mesh_shape()), "], the cores of this process are another one, of [",
                          c10::Join(",", here.mesh_shape()), "]; tpu_initialize() tells it");
  }
  const std::vector<LogicalDevice> all = devices_of(client);
  std::vector<LogicalDevice> devices;
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    devices.push_back(all[static_cast<std::size_t>(assignment.tpu_ordinal(replica))]);
  }
  return devices;
}

StrategyPlan tpu_plan(const TPUClusterResolver* resolver, const TPUStrategyOptions& options) {
  require_own_tpu(resolver);
  if (options.device_assignment && options.num_devices != 0) {
    fail<InvalidArgument>("[strategy] TPUStrategy: num_devices is ", options.num_devices,
                          ", and device_assignment says which devices are used; give one of them");
  }
  const XlaStrategyOptions plain{.plugin = options.plugin,
                                 .num_devices = options.num_devices,
                                 .plugin_options = options.plugin_options,
                                 .matmul_precision = options.matmul_precision,
                                 .timeout = options.timeout,
                                 .loop_input_bytes = options.loop_input_bytes};
  StrategyPlan plan = xla_plan("tpu", "TPUStrategy", plain);
  if (!options.device_assignment) return plan;
  const XlaClientPtr client = open_xla({.plugin = options.plugin, .source = "TPUStrategy"});
  plan = local_plan("tpu", assigned(*options.device_assignment, *client));
  plan.exchange.timeout = options.timeout;
  plan.loop_input_bytes = options.loop_input_bytes;
  return plan;
}

}  // namespace

Strategy absent_strategy(std::shared_ptr<record::GraphRunner> runner) {
  open_absent_xla(std::move(runner));
  return Access::make<Strategy>(std::make_shared<StrategyCore>(local_plan("xla", list_logical_devices("XLA"))));
}

XlaStrategy::XlaStrategy(const XlaStrategyOptions& options)
    : Strategy(std::make_shared<StrategyCore>(xla_plan("xla", "XlaStrategy", options))) {}

TPUClusterResolver::TPUClusterResolver(std::string tpu) : tpu_(std::move(tpu)) {
  const char* const named = std::getenv("TPU_NAME");
  if (tpu_.empty()) tpu_ = named == nullptr || *named == 0 ? "local" : named;
  constexpr std::string_view kScheme = "grpc://";
  if (!tpu_.starts_with(kScheme)) return;
  const std::string_view address = std::string_view(tpu_).substr(kScheme.size());
  const std::size_t colon = address.rfind(':');
  if (colon == 0 || colon == std::string_view::npos || colon + 1 == address.size()) {
    fail<InvalidArgument>("[cluster] tpu is ", tpu_, ", which is no address, wanted grpc://host:port");
  }
}

void TPUClusterResolver::require_local() const {
  if (tpu_ == "local") return;
  fail<Unimplemented>("[cluster] the TPU ", tpu_,
                      " is not this machine's: a TPU is driven by libtpu on its own machine ",
                      "only; run the program there with local");
}

TpuTopology tpu_initialize(const std::shared_ptr<TPUClusterResolver>& resolver, const std::string& plugin,
                           const std::string& plugin_options) {
  require_own_tpu(resolver.get());
  return topology_of(
      *open_xla({.plugin = plugin, .source = "tpu_initialize", .options = parse_xla_options(plugin_options)}));
}

TPUStrategy::TPUStrategy(const std::shared_ptr<TPUClusterResolver>& resolver, const TPUStrategyOptions& options)
    : Strategy(std::make_shared<StrategyCore>(tpu_plan(resolver.get(), options))) {}

}  // namespace cohort
