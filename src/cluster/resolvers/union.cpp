#include "base/fail.h"
#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

namespace {

bool has_gaps(const ClusterSpec::Tasks& tasks) {
  return tasks.rbegin()->first + 1 != static_cast<int>(tasks.size());
}

}  // namespace

UnionResolver::UnionResolver(std::vector<ClusterResolverPtr> resolvers, UnionOptions options)
    : resolvers_(std::move(resolvers)), options_(std::move(options)) {
  if (resolvers_.empty()) fail<InvalidArgument>("[cluster] union: needs at least one resolver, got none");
}

ClusterSpec UnionResolver::cluster_spec() const {
  std::map<std::string, std::vector<ClusterSpec::Tasks>> parts;
  for (const ClusterResolverPtr& resolver : resolvers_) {
    const ClusterSpec cluster = resolver->cluster_spec();
    for (const auto& [job, tasks] : cluster.jobs()) parts[job].push_back(tasks);
  }
  std::map<std::string, ClusterSpec::Tasks> jobs;
  for (const auto& [job, members] : parts) {
    ClusterSpec::Tasks& all = jobs[job];
    const bool by_index = std::any_of(members.begin(), members.end(), has_gaps);
    for (const ClusterSpec::Tasks& tasks : members) {
      for (const auto& [index, address] : tasks) {
        const int at = by_index ? index : static_cast<int>(all.size());
        if (all.emplace(at, address).second) continue;
        fail<InvalidArgument>("[cluster] union: two resolvers have a ", TaskId{job, at}.to_string());
      }
    }
  }
  return ClusterSpec(std::move(jobs));
}

std::optional<TaskId> UnionResolver::task() const {
  return options_.task ? options_.task : resolvers_.front()->task();
}

std::string UnionResolver::rpc_layer() const {
  return options_.rpc_layer.value_or(resolvers_.front()->rpc_layer());
}

}  // namespace cohort
