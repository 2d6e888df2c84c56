// Gives the core what this wing has.
#include "base/extension.h"
#include "cluster/coordination/client.h"
#include "wings/etcd/cluster/etcd_coordination.h"
#include "wings/etcd/models/etcd_flags.h"

namespace cohort {

namespace {

std::unique_ptr<CoordinationEnd> open_end_at_etcd(const ClusterSpec& cluster, const TaskId& task,
                                                  const MembershipOptions& options) {
  return std::make_unique<EtcdCoordination>(cluster, task, options);
}

}  // namespace

void install_etcd() {
  for (const char* scheme : {"etcd://", "etcds://"}) {
    extend(CoordinationRow{.scheme = scheme, .open = open_end_at_etcd});
  }
  extend(etcd_flags());
}

}  // namespace cohort
