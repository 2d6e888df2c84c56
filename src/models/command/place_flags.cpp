#include "models/command/place_flags.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstdlib>

#include "base/fail.h"
#include "cluster/local_place.h"
#include "cohort/cluster/cluster_resolver.h"
#include "device/visible_cards.h"

namespace cohort {

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

std::vector<std::string> worker_devices_of(const StrategyFlags& flags) {
  if (flags.num_gpus == 0) return devices_of(flags);
  const auto visible = static_cast<int>(list_logical_devices("GPU").size());
  std::vector<std::string> names;
  for (const int gpu : gpus_of_worker(visible, static_cast<int>(flags.num_gpus), local_place()))
    names.push_back("/GPU:" + std::to_string(gpu));
  return names;
}

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

int parts_of(const StrategyFlags& flags) {
  const auto& dims = flags.input_partition_dims.empty() ? flags.eval_input_partition_dims : flags.input_partition_dims;
  return static_cast<int>(c10::multiply_integers(dims));
}

}  // namespace cohort
