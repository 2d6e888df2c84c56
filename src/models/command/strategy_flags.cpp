// A strategy by its name. One table has the names, the functions that make the strategies and what each of them takes;
// the checks of the flags, the errors and the text of --help are made from it.
#include "cohort/models/strategy_flags.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <tuple>

#include "base/fail.h"
#include "cluster/local_place.h"
#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/cluster/xla_strategy.h"
#include "device/visible_cards.h"
#include "models/command/exchange_flags.h"
#include "models/command/mesh_flags.h"
#include "models/command/pipeline_flags.h"
#include "models/command/security_flags.h"
#include "models/command/sharding_flags.h"
#include "models/command/strategy_table.h"
#include "models/command/warn_of_workers.h"

namespace cohort {

namespace {

// Returns one CPU device for each replica, or the first GPUs.
std::vector<std::string> devices_of(const StrategyFlags& flags) {
  if (flags.num_gpus == 0) return cpu_devices(static_cast<int>(std::max<int64_t>(1, flags.num_replicas)));
  const auto visible = static_cast<int64_t>(list_logical_devices("GPU").size());
  if (flags.num_gpus > visible) {
    const char* shown = std::getenv(kVisibleCards);
    const std::string hidden = why_cards_are_hidden(shown == nullptr ? std::nullopt : std::optional<std::string>(shown),
                                                    static_cast<int>(visible));
    fail<NotFound>("[train] --num_gpus is ", flags.num_gpus, ", but there is no /device:GPU:", visible, " here",
                   hidden.empty() ? "" : "; ", hidden);
  }
  std::vector<std::string> names;
  for (int64_t i = 0; i < flags.num_gpus; ++i) names.push_back("/GPU:" + std::to_string(i));
  return names;
}

// Returns the devices of one of several workers, which takes its own part of the GPUs of its machine.
std::vector<std::string> worker_devices_of(const StrategyFlags& flags) {
  if (flags.num_gpus == 0) return devices_of(flags);
  const auto visible = static_cast<int>(list_logical_devices("GPU").size());
  std::vector<std::string> names;
  for (const int gpu : gpus_of_worker(visible, static_cast<int>(flags.num_gpus), local_place()))
    names.push_back("/GPU:" + std::to_string(gpu));
  return names;
}

// Returns the names of the rows that take what the member says.
std::string names_that(bool StrategyRow::*takes) {
  std::vector<std::string> names;
  for (const StrategyRow& row : strategy_table()) {
    if (row.*takes) names.emplace_back(row.name);
  }
  std::string text = names.front();
  for (std::size_t i = 1; i < names.size(); ++i) text += (i + 1 < names.size() ? ", " : " and ") + names[i];
  return text;
}

void require_one_replica(const StrategyFlags& flags, const std::string& name) {
  if (flags.num_gpus > 1) {
    fail<InvalidArgument>("[train] --distribution_strategy=", name, " uses one device, but --num_gpus is ",
                          flags.num_gpus);
  }
  if (flags.num_replicas > 1) {
    fail<InvalidArgument>("[train] --distribution_strategy=", name, " has one replica, but --num_replicas is ",
                          flags.num_replicas);
  }
}

void check_counts(const StrategyFlags& flags) {
  check_sharding(flags);
  check_exchange(flags);
  if (flags.num_gpus < 0 || flags.num_gpus > kMostReplicas) {
    fail<InvalidArgument>("[train] --num_gpus is ", flags.num_gpus, ", wanted 0 to ", kMostReplicas);
  }
  if (flags.num_replicas < 0 || flags.num_replicas > kMostReplicas) {
    fail<InvalidArgument>("[train] --num_replicas is ", flags.num_replicas, ", wanted 1 to ", kMostReplicas);
  }
  if (flags.num_gpus > 0 && flags.num_replicas > 0 && flags.num_gpus != flags.num_replicas) {
    fail<InvalidArgument>("[train] --num_gpus=", flags.num_gpus, " and --num_replicas=", flags.num_replicas,
                          " disagree: there is one replica a GPU; --num_replicas is for CPU replicas");
  }
}

// Fails if a flag is set that the strategy does not take.
void check(const StrategyFlags& flags, const StrategyRow& row) {
  const std::string name = row.name;
  if (row.takes != StrategyTakes::kCluster && (lower(flags.consistency) != "asynchronous" || flags.ps_replicas != 1)) {
    fail<InvalidArgument>("[train] --consistency and --ps_replicas have no meaning under --distribution_strategy=",
                          name, ", only under parameter_server");
  }
  if (flags.staleness != StrategyFlags().staleness && lower(flags.consistency) != "bounded_staleness") {
    fail<InvalidArgument>("[train] --staleness=", flags.staleness,
                          " has no meaning under --consistency=", flags.consistency, ", only under bounded_staleness");
  }
  using Choice = std::tuple<bool, std::string, bool StrategyRow::*>;  // whether it is made, its flag, who takes it
  for (const auto& [made, flag, takes] :
       {Choice(flags.num_packs != 1, c10::str("num_packs=", flags.num_packs), &StrategyRow::exchanges),
        Choice(*flags.gradient_compression != "none", "gradient_compression=" + *flags.gradient_compression,
               &StrategyRow::exchanges),
        Choice(!flags.all_reduce_alg->empty(), "all_reduce_alg=" + *flags.all_reduce_alg, &StrategyRow::exchanges),
        Choice(!flags.mesh->empty(), "mesh=" + *flags.mesh, &StrategyRow::meshes),
        Choice(flags.sharding_stage != 0, c10::str("sharding_stage=", flags.sharding_stage), &StrategyRow::shards)}) {
    if (!made || row.*takes) continue;
    fail<InvalidArgument>("[train] --", flag, " has no meaning under --distribution_strategy=", name, ", only under ",
                          names_that(takes));
  }
  check_mesh(flags);
  if (!flags.tpu->empty() && name != "tpu") {
    fail<InvalidArgument>("[train] --tpu=", flags.tpu, " has no meaning under --distribution_strategy=", name,
                          ", only under tpu");
  }
  const bool has_plugin = row.takes == StrategyTakes::kPlugin;
  using Dims = std::pair<const char*, const std::vector<int64_t>&>;
  for (const auto& [key, dims] : {Dims("task.train_input_partition_dims", flags.input_partition_dims),
                                  Dims("task.eval_input_partition_dims", flags.eval_input_partition_dims)}) {
    if (dims.empty() || row.divides || (row.meshes && !flags.mesh->empty())) continue;
    fail<InvalidArgument>("[train] ", key, " has no meaning under --distribution_strategy=", name, ", only under ",
                          names_that(&StrategyRow::divides), row.meshes ? ", or with an axis space in --mesh" : "");
  }
  using Flag = std::pair<const char*, std::string>;
  for (const auto& [flag, value] : {Flag("xla_plugin", flags.xla_plugin), Flag("xla_options", flags.xla_options)}) {
    if (value.empty() || has_plugin) continue;
    fail<InvalidArgument>("[train] --", flag, "=", value, " has no meaning under --distribution_strategy=", name,
                          ", only under tpu and xla");
  }
  if (flags.matmul_precision != XlaStrategyOptions().matmul_precision && !has_plugin) {
    fail<InvalidArgument>("[train] --matmul_precision=", flags.matmul_precision,
                          " has no meaning under --distribution_strategy=", name, ", only under tpu and xla");
  }
  if (flags.num_gpus > 0 && has_plugin) {
    fail<InvalidArgument>("[train] --num_gpus=", flags.num_gpus, " has no meaning under --distribution_strategy=", name,
                          "; --num_replicas is the number of replicas on the plugin's devices");
  }
  const bool takes_hosts = name == "multi_worker_mirrored" || name == "tpu";
  if (!takes_hosts && !(flags.worker_hosts->empty() && flags.task_index == -1)) {
    fail<InvalidArgument>("[train] --worker_hosts and --task_index have no meaning under --distribution_strategy=",
                          name, ", only under multi_worker_mirrored and tpu");
  }
}

// Fails if the flags describe another cluster than the environment does.
void check_cluster(const StrategyFlags& flags) {
  if (flags.worker_hosts->empty() && flags.task_index != -1) {
    fail<InvalidArgument>("[train] --task_index=", flags.task_index,
                          " has no meaning without --worker_hosts, of which it is one");
  }
  if (flags.worker_hosts->empty()) return;
  const TFConfigResolver environment;
  const ClusterSpec cluster = environment.cluster_spec();
  if (cluster.empty()) return;
  std::string hosts;
  for (const auto& [index, host] : cluster.has_job("worker") ? cluster.jobs().at("worker") : ClusterSpec::Tasks()) {
    hosts += (hosts.empty() ? "" : ",") + host;
  }
  const std::optional<TaskId> task = environment.task();
  const bool same = cluster.jobs().size() == 1 && hosts == *flags.worker_hosts && task &&
                    (flags.task_index == -1 || flags.task_index == task->index);
  if (same) return;
  fail<InvalidArgument>("[train] --worker_hosts=", flags.worker_hosts, " with --task_index=", flags.task_index,
                        " is another cluster than TF_CONFIG's, which is ", cluster.to_json(), " with the task ",
                        task ? task->to_string() : "missing", "; give one of them");
}

struct ConsistencyRow {
  const char* name;
  Consistency::Kind kind;
};
constexpr std::array kConsistencies = {
    ConsistencyRow{"asynchronous", Consistency::Kind::kAsynchronous},
    ConsistencyRow{"bounded_staleness", Consistency::Kind::kBoundedStaleness},
    ConsistencyRow{"synchronous", Consistency::Kind::kSynchronous},
};

// Returns the names in a table as a text.
template <typename Table>
std::string names_in(const Table& table) {
  std::string text;
  for (const auto& row : table) text += c10::str(text.empty() ? "" : ", ", row.name);
  return text;
}

Consistency consistency_of(const StrategyFlags& flags) {
  const std::string name = lower(flags.consistency);
  for (const ConsistencyRow& row : kConsistencies) {
    if (name != row.name) continue;
    Consistency consistency{.kind = row.kind};
    if (row.kind != Consistency::Kind::kBoundedStaleness) return consistency;
    if (flags.staleness < 0) fail<InvalidArgument>("[train] --staleness is ", flags.staleness, ", wanted 0 or more");
    consistency.staleness = flags.staleness;
    return consistency;
  }
  fail<InvalidArgument>("[train] --consistency=", flags.consistency, " is not known; there are ",
                        names_in(kConsistencies));
}

Strategy make_off(const StrategyFlags& flags) {
  const DeviceScope device(devices_of(flags).front());
  return DefaultStrategy();
}

Strategy make_one_device(const StrategyFlags& flags) {
  return OneDeviceStrategy(devices_of(flags).front());
}

Strategy make_mirrored(const StrategyFlags& flags) {
  if (!flags.mesh->empty()) return make_mesh(flags, devices_of(flags), exchange_options(flags));
  const int replicas = static_cast<int>(std::max<int64_t>(1, flags.num_replicas));
  if (replicas * parts_of(flags) > kMostReplicas) {
    fail<InvalidArgument>("[train] ", replicas, " replicas of ", parts_of(flags), " parts are ",
                          replicas * parts_of(flags), " CPUs, wanted ", kMostReplicas, " or less");
  }
  if (parts_of(flags) > 1 && flags.sharding_stage != 0) {
    fail<Unimplemented>("[train] --sharding_stage=", flags.sharding_stage, " and inputs in ", parts_of(flags),
                        " parts (task.train_input_partition_dims) do not go together; one of them would fit");
  }
  return MirroredStrategy({.devices = flags.num_gpus == 0 ? cpu_devices(replicas * parts_of(flags)) : devices_of(flags),
                           .exchange = exchange_options(flags),
                           .sharding = sharding_of(flags),
                           .input_partition_dims = flags.input_partition_dims,
                           .eval_input_partition_dims = flags.eval_input_partition_dims});
}

Strategy make_multi_worker_mirrored(const StrategyFlags& flags) {
  check_cluster(flags);
  configure_cluster(flags.worker_hosts, static_cast<int>(flags.task_index));
  const bool evaluates = is_evaluator(flags);
  if (!flags.mesh->empty() && !evaluates)
    return make_mesh_of_workers(flags, devices_of(flags), exchange_options(flags));
  return MultiWorkerMirroredStrategy({.communication = communication_of(flags),
                                      .membership = membership_of(flags),
                                      .devices = worker_devices_of(flags),
                                      .exchange = message_options(flags),
                                      .local_sgd = local_sgd_of(flags),
                                      .sharding = sharding_of(flags)});
}

Strategy make_parameter_server(const StrategyFlags& flags) {
  return ParameterServerStrategy({.consistency = consistency_of(flags),
                                  .replicas = static_cast<int>(flags.ps_replicas),
                                  .security = security_of(flags),
                                  .allow_insecure = flags.insecure,
                                  .devices = devices_of(flags)});
}

Strategy make_central_storage(const StrategyFlags& flags) {
  return CentralStorageStrategy({.compute_devices = devices_of(flags)});
}

Strategy make_tpu(const StrategyFlags& flags) {
  check_cluster(flags);
  configure_cluster(flags.worker_hosts, static_cast<int>(flags.task_index));
  const std::string plugin = flags.xla_plugin->empty() ? TPUStrategyOptions().plugin : *flags.xla_plugin;
  return TPUStrategy(std::make_shared<TPUClusterResolver>(flags.tpu),
                     {.plugin = plugin,
                      .num_devices = static_cast<int>(flags.num_replicas) * parts_of(flags),
                      .plugin_options = flags.xla_options,
                      .matmul_precision = flags.matmul_precision,
                      .input_partition_dims = flags.input_partition_dims,
                      .eval_input_partition_dims = flags.eval_input_partition_dims,
                      .membership = membership_of(flags)});
}

Strategy make_xla(const StrategyFlags& flags) {
  return XlaStrategy({.plugin = flags.xla_plugin,
                      .num_devices = static_cast<int>(flags.num_replicas) * parts_of(flags),
                      .plugin_options = flags.xla_options,
                      .matmul_precision = flags.matmul_precision,
                      .input_partition_dims = flags.input_partition_dims,
                      .eval_input_partition_dims = flags.eval_input_partition_dims});
}

constexpr std::array kStrategies = {
    StrategyRow{.name = "off", .make = make_off, .takes = StrategyTakes::kOneReplica},
    StrategyRow{.name = "one_device", .make = make_one_device, .takes = StrategyTakes::kOneReplica},
    StrategyRow{.name = "mirrored",
                .make = make_mirrored,
                .takes = StrategyTakes::kReplicas,
                .exchanges = true,
                .shards = true,
                .meshes = true,
                .divides = true},
    StrategyRow{.name = "multi_worker_mirrored",
                .make = make_multi_worker_mirrored,
                .takes = StrategyTakes::kReplicas,
                .exchanges = true,
                .shards = true,
                .meshes = true,
                .joins_others = true},
    StrategyRow{.name = "parameter_server",
                .make = make_parameter_server,
                .takes = StrategyTakes::kCluster,
                .joins_others = true},
    StrategyRow{.name = "central_storage", .make = make_central_storage, .takes = StrategyTakes::kReplicas},
    StrategyRow{
        .name = "tpu", .make = make_tpu, .takes = StrategyTakes::kPlugin, .divides = true, .joins_others = true},
    StrategyRow{.name = "xla", .make = make_xla, .takes = StrategyTakes::kPlugin, .divides = true},
};

// Returns the row of a name, or null.
const StrategyRow* find_row(const std::string& name) {
  const auto* row =
      std::find_if(kStrategies.begin(), kStrategies.end(), [&](const StrategyRow& each) { return name == each.name; });
  return row == kStrategies.end() ? nullptr : row;
}

}  // namespace

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::span<const StrategyRow> strategy_table() {
  return kStrategies;
}

void StrategyFlags::describe(ConfigFields& fields) {
  const auto add = [&](const char* name, auto& setting, const std::string& help, const std::string& names = "") {
    ConfigFields::Field& field = fields.add(name, setting, help);
    field.flag = c10::str("--", name);
    field.names = names;
  };
  add("distribution_strategy", distribution_strategy, "the strategy", names_in(kStrategies));
  add("num_gpus", num_gpus, "GPUs to use; 0: the CPU");
  add("num_replicas", num_replicas,
      "replicas on the CPU; 0: one; under tpu and xla: those of the plugin's devices, 0: all");
  describe_exchange(*this, fields);
  describe_sharding(*this, fields);
  describe_mesh(*this, fields);
  describe_pipeline(*this, fields);
  add("worker_hosts", worker_hosts,
      "addresses of all workers of multi_worker_mirrored, or of all hosts of a pod under tpu, host:port,host:port; "
      "empty: as the environment says");
  add("task_index", task_index, "which of the worker_hosts this process is");
  add("tpu", tpu, "a TPU: its name, its address (grpc://host:port), local, or empty for the one of the environment");
  add("xla_plugin", xla_plugin,
      "the PJRT plugin of tpu and xla: the path of a shared library, or the name of one that was found (tpu, cuda, "
      "cpu); empty: tpu under tpu, else the first one");
  add("xla_options", xla_options,
      "options that the plugin of tpu and xla takes, as name=value,name=value, such as cpu_device_count=8");
  add("matmul_precision", matmul_precision,
      "how tpu and xla multiply float32: default is the device's way, on TPUs one pass in bfloat16; high, on TPUs "
      "three; highest, float32",
      "default, high, highest");
  describe_security(*this, fields);
  add("consistency", consistency, "how parameter_server keeps workers together: " + names_in(kConsistencies));
  add("staleness", staleness, "steps that a worker may be ahead of the slowest one under bounded_staleness");
  add("ps_replicas", ps_replicas, "servers of parameter_server that have each variable, 1 or 2");
}

bool is_evaluator(const StrategyFlags& flags) {
  const StrategyRow* row = find_row(lower(flags.distribution_strategy));
  if (row == nullptr || !row->joins_others) return false;
  if (!flags.worker_hosts->empty()) return false;
  const std::optional<TaskId> task = TFConfigResolver().task();
  return task && task->type == "evaluator";
}

Strategy make_strategy(const StrategyFlags& flags) {
  const std::string name = lower(flags.distribution_strategy);
  if (name == "false") {
    fail<InvalidArgument>(
        "[train] --distribution_strategy is false: write off as text, YAML reads an unquoted off as false");
  }
  const StrategyRow* row = find_row(name);
  if (row == nullptr) {
    fail<InvalidArgument>("[train] --distribution_strategy=", flags.distribution_strategy, " is not known; there are ",
                          names_in(kStrategies));
  }
  check_counts(flags);
  check(flags, *row);
  if (flags.mesh->empty()) check_pipeline(flags);
  check_security(flags, row->joins_others);
  if (!row->joins_others) warn_of_workers(name);
  if (row->takes == StrategyTakes::kOneReplica) require_one_replica(flags, name);
  return row->make(flags);
}

}  // namespace cohort
