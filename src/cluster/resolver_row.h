// ResolverRow: a launcher that resolve_cluster() knows by its environment variables.
#pragma once

#include <string_view>

#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

// An extension. TF_CONFIG comes before all rows. Of those that apply, the one with the lowest place is taken: torchrun
// 10, Slurm 20, MPI 30 (after Slurm, whose PMI plugins set variables of MPI, too), SageMaker 40.
struct ResolverRow {
  std::string_view name;  // the name of its resolver
  int place = 0;
  bool (*applies)(const Environment& variables) = nullptr;  // returns whether this launcher started the process
  ClusterResolverPtr (*make)(const Environment& variables) = nullptr;
};

}  // namespace cohort
