#include "strategy_flags.h"

#include <algorithm>
#include <cctype>

#include "base/fail.h"
#include "cohort/multi_worker_strategy.h"
#include "cohort/parameter_server_strategy.h"

namespace cohort::cli {

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// One CPU device a replica, or the first GPUs.
std::vector<std::string> devices_of(const StrategyFlags& flags) {
  if (flags.num_gpus == 0) return cpu_devices(std::max(1, flags.num_replicas));
  std::vector<std::string> names;
  for (int i = 0; i < flags.num_gpus; ++i) names.push_back("/GPU:" + std::to_string(i));
  return names;
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

void check(const StrategyFlags& flags, const std::string& name) {
  if (flags.num_gpus < 0) fail<InvalidArgument>("[train] --num_gpus is ", flags.num_gpus, ", wanted 0 or more");
  if (flags.num_replicas < 0)
    fail<InvalidArgument>("[train] --num_replicas is ", flags.num_replicas, ", wanted 1 or more");
  if (flags.num_packs < 0) fail<InvalidArgument>("[train] --num_packs is ", flags.num_packs, ", wanted 0 or more");
  if (flags.num_gpus > 0 && flags.num_replicas > 0 && flags.num_gpus != flags.num_replicas) {
    fail<InvalidArgument>("[train] --num_gpus=", flags.num_gpus, " and --num_replicas=", flags.num_replicas,
                          " disagree: there is one replica a GPU; --num_replicas is for CPU replicas");
  }
  const bool many_workers = name == "multi_worker_mirrored";
  if (name != "parameter_server" && (lower(flags.consistency) != "asynchronous" || flags.ps_replicas != 1)) {
    fail<InvalidArgument>("[train] --consistency and --ps_replicas have no meaning under --distribution_strategy=",
                          name, ", only under parameter_server");
  }
  if (!flags.all_reduce_alg.empty() && name != "mirrored" && !many_workers) {
    fail<InvalidArgument>("[train] --all_reduce_alg=", flags.all_reduce_alg,
                          " has no meaning under --distribution_strategy=", name,
                          ", only under mirrored and multi_worker_mirrored");
  }
  if (!many_workers && !(flags.worker_hosts.empty() && flags.task_index == -1)) {
    fail<InvalidArgument>("[train] --worker_hosts and --task_index have no meaning under --distribution_strategy=",
                          name, ", only under multi_worker_mirrored");
  }
}

Consistency consistency_of(const StrategyFlags& flags) {
  const std::string name = lower(flags.consistency);
  if (name == "asynchronous") return {};
  if (name == "synchronous") return {.kind = Consistency::Kind::kSynchronous};
  if (name == "bounded_staleness") {
    if (flags.staleness < 0) fail<InvalidArgument>("[train] --staleness is ", flags.staleness, ", wanted 0 or more");
    return {.kind = Consistency::Kind::kBoundedStaleness, .staleness = flags.staleness};
  }
  fail<InvalidArgument>("[train] --consistency=", flags.consistency,
                        " is not known; asynchronous, bounded_staleness and synchronous are");
}

}  // namespace

void add_strategy_flags(CLI::App& app, StrategyFlags& flags) {
  app.add_option("--distribution_strategy", flags.distribution_strategy,
                 "off, one_device, mirrored, multi_worker_mirrored, parameter_server or central_storage")
      ->capture_default_str();
  app.add_option("--num_gpus", flags.num_gpus, "GPUs to use; 0: the CPU")->capture_default_str();
  app.add_option("--num_replicas", flags.num_replicas, "replicas on the CPU; 0: one")->capture_default_str();
  app.add_option(
      "--all_reduce_alg", flags.all_reduce_alg,
      "mirrored: auto, ring, nccl, hierarchical_copy or reduction_to_one_device; multi_worker_mirrored: auto, "
      "ring, mpi or nccl");
  app.add_option("--worker_hosts", flags.worker_hosts,
                 "multi_worker_mirrored: addresses of all workers, host:port,host:port; without, the environment says");
  app.add_option("--task_index", flags.task_index, "multi_worker_mirrored: which of the worker_hosts this process is");
  app.add_option("--consistency", flags.consistency, "parameter_server: asynchronous, bounded_staleness or synchronous")
      ->capture_default_str();
  app.add_option("--staleness", flags.staleness, "bounded_staleness: steps that a worker may be ahead of the slowest")
      ->capture_default_str();
  app.add_option("--ps_replicas", flags.ps_replicas, "parameter_server: servers that have each variable, 1 or 2")
      ->capture_default_str();
  app.add_option("--num_packs", flags.num_packs, "messages that the gradients are packed into; 0: no packing")
      ->capture_default_str();
}

bool is_evaluator(const StrategyFlags& flags) {
  const std::string name = lower(flags.distribution_strategy);
  if (name != "multi_worker_mirrored" && name != "parameter_server") return false;
  if (!flags.worker_hosts.empty()) return false;
  const std::optional<TaskId> task = TFConfigResolver().task();
  return task && task->type == "evaluator";
}

Strategy make_strategy(const StrategyFlags& flags) {
  const std::string name = lower(flags.distribution_strategy);
  if (name == "false") {
    fail<InvalidArgument>(
        "[train] --distribution_strategy is false: write off as text, YAML reads an unquoted off as false");
  }
  check(flags, name);
  if (name == "off") {
    require_one_replica(flags, name);
    const DeviceScope device(devices_of(flags).front());
    return DefaultStrategy();
  }
  if (name == "one_device") {
    require_one_replica(flags, name);
    return OneDeviceStrategy(devices_of(flags).front());
  }
  if (name == "mirrored") {
    const std::string ops = flags.all_reduce_alg.empty() ? "auto" : lower(flags.all_reduce_alg);
    return MirroredStrategy(
        {.devices = devices_of(flags), .exchange = {.cross_device_ops = ops, .num_packs = flags.num_packs}});
  }
  if (name == "multi_worker_mirrored") {
    configure_cluster(flags.worker_hosts, flags.task_index);
    const std::string implementation = flags.all_reduce_alg.empty() ? "auto" : lower(flags.all_reduce_alg);
    return MultiWorkerMirroredStrategy({.communication = {.implementation = implementation},
                                        .devices = devices_of(flags),
                                        .exchange = {.num_packs = flags.num_packs}});
  }
  if (name == "parameter_server") {
    return ParameterServerStrategy({.consistency = consistency_of(flags),
                                    .replicas = flags.ps_replicas,
                                    .devices = devices_of(flags),
                                    .exchange = {.num_packs = flags.num_packs}});
  }
  if (name == "central_storage") return CentralStorageStrategy({.compute_devices = devices_of(flags)});
  fail<InvalidArgument>(
      "[train] --distribution_strategy=", flags.distribution_strategy,
      " is not known; off, one_device, mirrored, multi_worker_mirrored, parameter_server and central_storage are");
}

}  // namespace cohort::cli
