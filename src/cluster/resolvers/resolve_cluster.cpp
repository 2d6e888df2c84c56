// Chooses among the resolvers by the environment variables that launchers set.
#include <algorithm>

#include "base/extension.h"
#include "cluster/environment.h"
#include "cluster/resolver_row.h"
#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

namespace {

// A variable that says of how many processes a job consists. Where the build lacks the resolver, the process must not
// train alone.
struct JobSize {
  const char* variable;
  std::string_view resolver;
  std::string_view wing;
};
constexpr JobSize kJobSizes[] = {{"WORLD_SIZE", "torchrun", "schedulers"},
                                 {"PET_NNODES", "torchrun", "schedulers"},
                                 {"SLURM_STEP_NUM_TASKS", "slurm", "schedulers"},
                                 {"OMPI_COMM_WORLD_SIZE", "mpi", "mpi"},
                                 {"PMI_SIZE", "mpi", "mpi"},
                                 {"SM_HOSTS", "sagemaker", "schedulers"}};

void require_resolvers(const Environment& variables) {
  const std::vector<ResolverRow>& rows = extensions<ResolverRow>();
  for (const JobSize& size : kJobSizes) {
    const auto value = variable(variables, size.variable);
    if (!value || *value == "1") continue;
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.name == size.resolver; })) continue;
    fail_without(size.wing, "[cluster] ", size.variable, " is ", *value);
  }
}

}  // namespace

ClusterResolverPtr resolve_cluster(const Environment& variables) {
  if (variable(variables, "TF_CONFIG")) {
    return std::make_shared<TFConfigResolver>(TFConfigOptions{.variables = variables});
  }
  const ResolverRow* first = nullptr;
  for (const ResolverRow& row : extensions<ResolverRow>()) {
    if ((first == nullptr || row.place < first->place) && row.applies(variables)) first = &row;
  }
  if (first != nullptr) return first->make(variables);
  require_resolvers(variables);
  return std::make_shared<SimpleResolver>(SimpleResolverOptions{});
}

}  // namespace cohort
