#include <map>

#include "base/fail.h"
#include "cluster/environment.h"
#include "cohort/cluster/tpu_resolver.h"
#include "rpc/address.h"
#include "wings/xla/cluster/tpu_hosts.h"
#include "wings/xla/device/plugin.h"

namespace cohort {

namespace {

TpuHosts hosts_of(const TPUClusterResolverOptions& options) {
  const std::string skipped = variable(options.variables, "TPU_SKIP_MDS_QUERY").value_or("");
  const bool skips = skipped == "1" || skipped == "true";
  return read_tpu_hosts(options.variables, options.metadata.value_or(!skips && may_have_tpu()), options.fetch);
}

int workers_of(const ClusterSpec& cluster) {
  return cluster.num_tasks("chief") + cluster.num_tasks("worker");
}

// Returns the addresses of the coordination: each host's, and of a host with several processes one port for each.
ClusterSpec cluster_of(const TpuHosts& hosts, int port) {
  if (hosts.hosts.size() < 2) return {};
  std::map<std::string, int> next;
  std::vector<std::string> addresses;
  for (const std::string& host : hosts.hosts) addresses.push_back(Address{host, port + next[host]++}.to_string());
  return ClusterSpec(std::map<std::string, std::vector<std::string>>{{"worker", addresses}});
}

// Returns the cluster of which the environment speaks otherwise, where it has several workers; else null. It has to
// have as many as the pod.
ClusterResolverPtr other_cluster(const TPUClusterResolverOptions& options, const TpuHosts& hosts) {
  ClusterResolverPtr other = resolve_cluster(options.variables);
  const int workers = workers_of(other->cluster_spec());
  if (workers < 2) return nullptr;
  const auto processes = static_cast<int>(hosts.hosts.size());
  if (processes < 2 || processes == workers) return other;
  fail<InvalidArgument>("[cluster] tpu: ", hosts.source, " names ", processes, " processes, but the environment (",
                        other->name(), ") has ", workers, " workers");
}

}  // namespace

TPUClusterResolver::TPUClusterResolver(std::string tpu)
    : TPUClusterResolver(TPUClusterResolverOptions{.tpu = std::move(tpu)}) {}

TPUClusterResolver::TPUClusterResolver(TPUClusterResolverOptions options) : options_(std::move(options)) {
  std::string& tpu = options_.tpu;
  if (tpu.empty()) tpu = variable(options_.variables, "TPU_NAME").value_or("local");
  constexpr std::string_view kScheme = "grpc://";
  if (!tpu.starts_with(kScheme)) return;
  const std::string_view address = std::string_view(tpu).substr(kScheme.size());
  const std::size_t colon = address.rfind(':');
  if (colon == 0 || colon == std::string_view::npos || colon + 1 == address.size()) {
    fail<InvalidArgument>("[cluster] tpu is ", tpu, ", which is no address, wanted grpc://host:port");
  }
}

void TPUClusterResolver::require_local() const {
  if (tpu() == "local") return;
  fail<Unimplemented>("[cluster] the TPU ", tpu(),
                      " is not this machine's: a TPU is driven by libtpu on its own machine ",
                      "only; run the program there with local");
}

ClusterSpec TPUClusterResolver::cluster_spec() const {
  if (tpu() != "local") return {};
  const TpuHosts hosts = hosts_of(options_);
  if (const ClusterResolverPtr other = other_cluster(options_, hosts)) return other->cluster_spec();
  return cluster_of(hosts, options_.port);
}

std::optional<TaskId> TPUClusterResolver::task() const {
  if (tpu() != "local") return std::nullopt;
  const TpuHosts hosts = hosts_of(options_);
  if (const ClusterResolverPtr other = other_cluster(options_, hosts)) return other->task();
  if (hosts.hosts.size() < 2) return std::nullopt;
  return TaskId{"worker", hosts.process};
}

}  // namespace cohort
