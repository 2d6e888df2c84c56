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
std::vector<std::string> devices_of(const RuntimeConfig& runtime) {
  if (runtime.num_gpus == 0) return cpu_devices(static_cast<int>(std::max<int64_t>(1, runtime.num_replicas)));
  std::vector<std::string> names;
  for (int64_t i = 0; i < runtime.num_gpus; ++i) names.push_back("/GPU:" + std::to_string(i));
  return names;
}

void require_one_replica(const RuntimeConfig& runtime, const std::string& name) {
  if (runtime.num_gpus > 1) {
    fail<InvalidArgument>("[train] --distribution_strategy=", name, " uses one device, but --num_gpus is ",
                          runtime.num_gpus);
  }
  if (runtime.num_replicas > 1) {
    fail<InvalidArgument>("[train] --distribution_strategy=", name, " has one replica, but --num_replicas is ",
                          runtime.num_replicas);
  }
}

void check(const RuntimeConfig& runtime, const std::string& name) {
  if (runtime.num_gpus < 0) fail<InvalidArgument>("[train] --num_gpus is ", runtime.num_gpus, ", wanted 0 or more");
  if (runtime.num_replicas < 0)
    fail<InvalidArgument>("[train] --num_replicas is ", runtime.num_replicas, ", wanted 1 or more");
  if (runtime.num_packs < 0) fail<InvalidArgument>("[train] --num_packs is ", runtime.num_packs, ", wanted 0 or more");
  if (runtime.num_gpus > 0 && runtime.num_replicas > 0 && runtime.num_gpus != runtime.num_replicas) {
    fail<InvalidArgument>("[train] --num_gpus=", runtime.num_gpus, " and --num_replicas=", runtime.num_replicas,
                          " disagree: there is one replica a GPU; --num_replicas is for CPU replicas");
  }
  const bool many_workers = name == "multi_worker_mirrored";
  if (name != "parameter_server" && (lower(runtime.consistency) != "asynchronous" || runtime.ps_replicas != 1)) {
    fail<InvalidArgument>("[train] --consistency and --ps_replicas have no meaning under --distribution_strategy=",
                          name, ", only under parameter_server");
  }
  if (!runtime.all_reduce_alg.empty() && name != "mirrored" && !many_workers) {
    fail<InvalidArgument>("[train] --all_reduce_alg=", runtime.all_reduce_alg,
                          " has no meaning under --distribution_strategy=", name,
                          ", only under mirrored and multi_worker_mirrored");
  }
  if (!many_workers && !(runtime.worker_hosts.empty() && runtime.task_index == -1)) {
    fail<InvalidArgument>("[train] --worker_hosts and --task_index have no meaning under --distribution_strategy=",
                          name, ", only under multi_worker_mirrored");
  }
}

Consistency consistency_of(const RuntimeConfig& runtime) {
  const std::string name = lower(runtime.consistency);
  if (name == "asynchronous") return {};
  if (name == "synchronous") return {.kind = Consistency::Kind::kSynchronous};
  if (name == "bounded_staleness") {
    if (runtime.staleness < 0)
      fail<InvalidArgument>("[train] --staleness is ", runtime.staleness, ", wanted 0 or more");
    return {.kind = Consistency::Kind::kBoundedStaleness, .staleness = runtime.staleness};
  }
  fail<InvalidArgument>("[train] --consistency=", runtime.consistency,
                        " is not known; asynchronous, bounded_staleness and synchronous are");
}

}  // namespace

bool is_evaluator(const RuntimeConfig& runtime) {
  const std::string name = lower(runtime.distribution_strategy);
  if (name != "multi_worker_mirrored" && name != "parameter_server") return false;
  if (!runtime.worker_hosts.empty()) return false;
  const std::optional<TaskId> task = TFConfigResolver().task();
  return task && task->type == "evaluator";
}

Strategy make_strategy(const RuntimeConfig& runtime) {
  const std::string name = lower(runtime.distribution_strategy);
  if (name == "false") {
    fail<InvalidArgument>(
        "[train] --distribution_strategy is false: write off as text, YAML reads an unquoted off as false");
  }
  check(runtime, name);
  if (name == "off") {
    require_one_replica(runtime, name);
    const DeviceScope device(devices_of(runtime).front());
    return DefaultStrategy();
  }
  if (name == "one_device") {
    require_one_replica(runtime, name);
    return OneDeviceStrategy(devices_of(runtime).front());
  }
  if (name == "mirrored") {
    const std::string ops = runtime.all_reduce_alg.empty() ? "auto" : lower(runtime.all_reduce_alg);
    return MirroredStrategy({.devices = devices_of(runtime),
                             .exchange = {.cross_device_ops = ops, .num_packs = static_cast<int>(runtime.num_packs)}});
  }
  if (name == "multi_worker_mirrored") {
    configure_cluster(runtime.worker_hosts, static_cast<int>(runtime.task_index));
    const std::string implementation = runtime.all_reduce_alg.empty() ? "auto" : lower(runtime.all_reduce_alg);
    return MultiWorkerMirroredStrategy({.communication = {.implementation = implementation},
                                        .devices = devices_of(runtime),
                                        .exchange = {.num_packs = static_cast<int>(runtime.num_packs)}});
  }
  if (name == "parameter_server") {
    return ParameterServerStrategy({.consistency = consistency_of(runtime),
                                    .replicas = static_cast<int>(runtime.ps_replicas),
                                    .devices = devices_of(runtime),
                                    .exchange = {.num_packs = static_cast<int>(runtime.num_packs)}});
  }
  if (name == "central_storage") return CentralStorageStrategy({.compute_devices = devices_of(runtime)});
  fail<InvalidArgument>(
      "[train] --distribution_strategy=", runtime.distribution_strategy,
      " is not known; off, one_device, mirrored, multi_worker_mirrored, parameter_server and central_storage are");
}

}  // namespace cohort::cli
