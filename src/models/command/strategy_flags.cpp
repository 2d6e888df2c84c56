// A strategy by its name. One table has the names, the functions that make the strategies and what each of them takes;
// the checks of the flags, the errors and the text of --help are made from it.
#include "cohort/models/strategy_flags.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>

#include "base/extension.h"
#include "base/fail.h"
#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "models/command/exchange_flags.h"
#include "models/command/mesh_makers.h"
#include "models/command/place_flags.h"
#include "models/command/security_flags.h"
#include "models/command/sharding_flags.h"
#include "models/command/strategy_table.h"
#include "models/command/warn_of_workers.h"

namespace cohort {

namespace {

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
  using Dims = std::pair<const char*, const std::vector<int64_t>&>;
  for (const auto& [key, dims] : {Dims("task.train_input_partition_dims", flags.input_partition_dims),
                                  Dims("task.eval_input_partition_dims", flags.eval_input_partition_dims)}) {
    if (dims.empty() || row.divides || (row.meshes && !flags.mesh->empty())) continue;
    fail<InvalidArgument>("[train] ", key, " has no meaning under --distribution_strategy=", name, ", only under ",
                          names_that(&StrategyRow::divides), row.meshes ? ", or with an axis space in --mesh" : "");
  }
  if (!row.takes_hosts && !(flags.worker_hosts->empty() && flags.task_index == -1)) {
    fail<InvalidArgument>("[train] --worker_hosts and --task_index have no meaning under --distribution_strategy=",
                          name, ", only under ", names_that(&StrategyRow::takes_hosts));
  }
}

// Returns the names in a table as a text.
template <typename Table>
std::string names_in(const Table& table) {
  std::string text;
  for (const auto& row : table) text += c10::str(text.empty() ? "" : ", ", row.name);
  return text;
}

Strategy make_off(const StrategyFlags& flags) {
  const DeviceScope device(devices_of(flags).front());
  return DefaultStrategy();
}

Strategy make_one_device(const StrategyFlags& flags) {
  return OneDeviceStrategy(devices_of(flags).front());
}

Strategy make_mirrored(const StrategyFlags& flags) {
  if (!flags.mesh->empty()) return mesh_maker(flags).make(flags, devices_of(flags), exchange_options(flags));
  const int replicas = static_cast<int>(std::max<int64_t>(1, flags.num_replicas));
  if (replicas * parts_of(flags) > kMostReplicas) {
    fail<InvalidArgument>("[train] ", replicas, " replicas of ", parts_of(flags), " parts are ",
                          replicas * parts_of(flags), " CPUs, wanted ", kMostReplicas, " or less");
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
    return mesh_maker(flags).make_of_workers(flags, devices_of(flags), exchange_options(flags));
  return MultiWorkerMirroredStrategy({.communication = communication_of(flags),
                                      .membership = membership_of(flags),
                                      .devices = worker_devices_of(flags),
                                      .exchange = message_options(flags),
                                      .local_sgd = local_sgd_of(flags),
                                      .sharding = sharding_of(flags)});
}

Strategy make_central_storage(const StrategyFlags& flags) {
  return CentralStorageStrategy({.compute_devices = devices_of(flags)});
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
                .joins_others = true,
                .takes_hosts = true},
    StrategyRow{.name = "parameter_server", .wing = "parameter_server"},
    StrategyRow{.name = "central_storage", .make = make_central_storage, .takes = StrategyTakes::kReplicas},
    StrategyRow{.name = "tpu", .wing = "xla"},
    StrategyRow{.name = "xla", .wing = "xla"},
};

// Returns the row of a name in a table, or null.
const StrategyRow* find_row(std::span<const StrategyRow> table, std::string_view name) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const StrategyRow& each) { return name == each.name; });
  return row == table.end() ? nullptr : &*row;
}

// Puts the rows of wings in the places that the core's table has for them, and others behind it.
std::vector<StrategyRow> make_table() {
  const std::vector<StrategyRow>& more = extensions<StrategyRow>();
  std::vector<StrategyRow> table;
  for (const StrategyRow& row : kStrategies) {
    const StrategyRow* here = row.wing == nullptr ? &row : find_row(more, row.name);
    if (here != nullptr) table.push_back(*here);
  }
  for (const StrategyRow& row : more) {
    if (find_row(kStrategies, row.name) == nullptr) table.push_back(row);
  }
  return table;
}

[[noreturn]] void fail_to_find(const StrategyFlags& flags, const std::string& name) {
  const StrategyRow* row = find_row(kStrategies, name);
  if (row != nullptr) fail_without(row->wing, "[train] --distribution_strategy=", name);
  fail<InvalidArgument>("[train] --distribution_strategy=", flags.distribution_strategy, " is not known; there are ",
                        names_in(strategy_table()));
}

}  // namespace

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::span<const StrategyRow> strategy_table() {
  static const std::vector<StrategyRow> table = make_table();
  return table;
}

void StrategyFlags::describe(ConfigFields& fields) {
  const auto add = [&](const char* name, auto& setting, const std::string& help, const std::string& names = "") {
    ConfigFields::Field& field = fields.add(name, setting, help);
    field.flag = c10::str("--", name);
    field.names = names;
  };
  const auto describe_wings = [&](FlagPlace place) {
    for (const FlagsOfWing& wing : extensions<FlagsOfWing>()) {
      if (wing.place == place) wing.describe(*this, fields);
    }
  };
  add("distribution_strategy", distribution_strategy, "the strategy", names_in(strategy_table()));
  add("num_gpus", num_gpus, "GPUs to use; 0: the CPU");
  add("num_replicas", num_replicas,
      "replicas on the CPU; 0: one; under tpu and xla: those of the plugin's devices, 0: all");
  describe_exchange(*this, fields);
  describe_wings(FlagPlace::kExchange);
  describe_sharding(*this, fields);
  describe_wings(FlagPlace::kLayout);
  add("worker_hosts", worker_hosts,
      "addresses of all workers of multi_worker_mirrored, or of all hosts of a pod under tpu, host:port,host:port; "
      "empty: as the environment says");
  add("task_index", task_index, "which of the worker_hosts this process is");
  describe_wings(FlagPlace::kDevices);
  describe_security(*this, fields);
  describe_wings(FlagPlace::kLast);
}

bool is_evaluator(const StrategyFlags& flags) {
  const StrategyRow* row = find_row(strategy_table(), lower(flags.distribution_strategy));
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
  const StrategyRow* row = find_row(strategy_table(), name);
  if (row == nullptr) fail_to_find(flags, name);
  check_counts(flags);
  check(flags, *row);
  for (const FlagsOfWing& wing : extensions<FlagsOfWing>()) wing.check(flags, *row);
  check_security(flags, row->joins_others);
  if (!row->joins_others) warn_of_workers(name);
  if (row->takes == StrategyTakes::kOneReplica) require_one_replica(flags, name);
  return row->make(flags);
}

}  // namespace cohort
