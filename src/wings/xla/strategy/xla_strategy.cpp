#include "cohort/cluster/xla_strategy.h"

#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "strategy/plan_checks.h"
#include "strategy/strategies/devices.h"
#include "wings/xla/device/backend.h"
#include "wings/xla/device/find_plugin.h"
#include "wings/xla/record/recorder.h"
#include "wings/xla/strategy/absent.h"
#include "wings/xla/strategy/xla_plan.h"

namespace cohort {

std::vector<LogicalDevice> devices_of(const XlaClient& client) {
  return list_logical_devices(client.platform() == "tpu" ? "TPU" : "XLA");
}

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

std::vector<std::vector<int>> indices_of(const ReplicaDevices& replicas) {
  std::vector<std::vector<int>> indices;
  for (const std::vector<LogicalDevice>& cores : replicas) {
    std::vector<int>& own = indices.emplace_back();
    for (const LogicalDevice& core : cores) own.push_back(core.torch_device.index());
  }
  return indices;
}

torch::Tensor divide_recorded(const torch::Tensor& tensor, const std::vector<int64_t>& dims,
                              std::string_view /*caller*/) {
  return record::shard(tensor, dims);
}

torch::Tensor join_recorded(const torch::Tensor& tensor) {
  return record::shard(tensor, std::vector<int64_t>(static_cast<std::size_t>(tensor.dim()), 1));
}

StrategyPlan plan_of(const std::string& name, const std::string& speaker, const ReplicaDevices& replicas,
                     const XlaStrategyOptions& options) {
  std::vector<LogicalDevice> devices;
  for (const std::vector<LogicalDevice>& cores : replicas) devices.push_back(cores.front());
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
                .divide = divide_recorded,
                .join = join_recorded,
                .held = hold_xla_cores(indices_of(replicas))};
  return plan;
}

void check_counts(const std::string& speaker, const XlaStrategyOptions& options) {
  if (options.num_devices < 0) {
    fail<InvalidArgument>("[strategy] ", speaker, ": num_devices is ", options.num_devices,
                          ", wanted 0 (all devices) or more");
  }
  if (options.loop_input_bytes < 1) {
    fail<InvalidArgument>("[strategy] ", speaker, ": loop_input_bytes is ", options.loop_input_bytes,
                          ", wanted 1 or more");
  }
  if (options.kept_programs < 1) {
    fail<InvalidArgument>("[strategy] ", speaker, ": kept_programs is ", options.kept_programs, ", wanted 1 or more");
  }
}

XlaOpenOptions open_options(const std::string& speaker, const XlaStrategyOptions& options) {
  return {.plugin = options.plugin,
          .source = speaker,
          .options = parse_xla_options(options.plugin_options),
          .matmul_precision = options.matmul_precision,
          .kept_programs = options.kept_programs};
}

std::vector<LogicalDevice> open_devices(const std::string& speaker, const XlaStrategyOptions& options) {
  check_counts(speaker, options);
  XlaOpenOptions open = open_options(speaker, options);
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

int replicas_of(const std::string& speaker, const XlaStrategyOptions& options, int devices) {
  const int cores = cores_of(speaker, options);
  if (devices < cores || (options.num_devices > 0 && devices % cores != 0)) {
    fail<InvalidArgument>("[strategy] ", speaker, ": a replica has ", cores, " core(s), and there are ", devices,
                          " devices, wanted a multiple of it");
  }
  return devices / cores;
}

ReplicaDevices in_a_row(const std::vector<LogicalDevice>& devices, int replicas, int cores) {
  ReplicaDevices list;
  for (auto first = devices.begin(); static_cast<int>(list.size()) < replicas; first += cores) {
    list.emplace_back(first, first + cores);
  }
  return list;
}

StrategyPlan xla_plan(const std::string& name, const std::string& speaker, const XlaStrategyOptions& options) {
  const std::vector<LogicalDevice> devices = open_devices(speaker, options);
  const int replicas = replicas_of(speaker, options, static_cast<int>(devices.size()));
  return plan_of(name, speaker, in_a_row(devices, replicas, cores_of(speaker, options)), options);
}

Strategy absent_strategy(std::shared_ptr<record::GraphRunner> runner, const std::vector<int64_t>& partition_dims) {
  open_absent_xla(std::move(runner));
  StrategyPlan plan = local_plan("xla", list_logical_devices("XLA"));
  plan.cores.count = static_cast<int>(c10::multiply_integers(partition_dims));
  plan.cores.train_dims = plan.cores.eval_dims = partition_dims;
  plan.cores.divide = divide_recorded;
  plan.cores.join = join_recorded;
  return Access::make<Strategy>(std::make_shared<StrategyCore>(std::move(plan)));
}

XlaStrategy::XlaStrategy(const XlaStrategyOptions& options)
    : Strategy(std::make_shared<StrategyCore>(xla_plan("xla", "XlaStrategy", options))) {}

int XlaStrategy::num_cores_per_replica() const {
  return Access::core(*this)->plan().cores.count;
}

torch::Tensor XlaStrategy::experimental_assign_to_logical_device(const torch::Tensor& tensor,
                                                                 int logical_device_id) const {
  const int cores = num_cores_per_replica();
  if (logical_device_id < 0 || logical_device_id >= cores) {
    fail<InvalidArgument>("[strategy] experimental_assign_to_logical_device got the logical device ", logical_device_id,
                          ", but a replica has ", cores);
  }
  if (cores == 1) return tensor;
  fail<InvalidArgument>("[strategy] experimental_assign_to_logical_device: the ", cores,
                        " cores of a replica run one program together, so that no core has a tensor to itself; use "
                        "experimental_split_to_logical_devices or experimental_replicate_to_logical_devices");
}

}  // namespace cohort
