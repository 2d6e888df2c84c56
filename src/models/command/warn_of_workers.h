// A warning of a cluster in the environment that the strategy does not know.
#pragma once

#include <string>

#include "base/log.h"
#include "cohort/cluster/cluster_resolver.h"
#include "cohort/error.h"

namespace cohort {

// Warns of several workers that would each train a model of their own, which is seldom what was meant.
inline void warn_of_workers(const std::string& name) {
  try {
    const ClusterResolverPtr environment = resolve_cluster();
    const ClusterSpec cluster = environment->cluster_spec();
    const int workers = cluster.num_tasks("chief") + cluster.num_tasks("worker");
    if (workers < 2) return;
    log().warn(
        "[train] the environment ({}) names {} workers, but --distribution_strategy={} knows this process only: each "
        "of them trains a model of its own; multi_worker_mirrored makes it one",
        environment->name(), workers, name);
  } catch (const Error&) {  // This strategy does not need the cluster, so one that cannot be read does not matter.
  }
}

}  // namespace cohort
