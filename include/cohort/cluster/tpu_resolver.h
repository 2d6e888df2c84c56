// TPUClusterResolver: the TPU of this machine, and the hosts of its pod.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/scheduler_resolvers.h"

namespace cohort {

struct TPUClusterResolverOptions {
  // "local", a name, an address (grpc://host:port), or empty: TPU_NAME, or without it local.
  std::string tpu = "";
  // The port on which the first process of a pod serves the coordination, where the environment has no address of its
  // own for it; the next process on the same host counts on from it. It is the one that JAX takes.
  int port = 8482;
  // Whether Google's metadata server is asked for the hosts where no variable names them; nothing: if this machine has
  // a TPU.
  std::optional<bool> metadata = std::nullopt;
  HttpFetch fetch = http_fetch();                 // the function that asks the metadata server
  Environment variables = process_environment();  // the variables that are read
};

// Finds a TPU: "local" is that of this machine, and of the other hosts of its pod; empty is that of which the
// environment speaks, by TPU_NAME or, without it, the local one. Names and addresses of other machines
// (grpc://host:port) can be held, but a TPU is driven from its own machines: TPUStrategy refuses them.
//
// A pod is several processes, each with devices of its own. Who they are is told by libtpu's variables:
// TPU_PROCESS_ADDRESSES with CLOUD_TPU_TASK_ID, or TPU_WORKER_HOSTNAMES with TPU_WORKER_ID (or CLOUD_TPU_TASK_ID), else
// by the metadata server of a TPU VM. Where TF_CONFIG or another variable of resolve_cluster() has several workers as
// well, as under cohort launch, it has the addresses and the number of this process. InvalidArgument names the variable
// that is malformed or contradicts another: TPU_PROCESS_BOUNDS (TPU_HOST_BOUNDS) is the number of processes, an id is
// below it. FailedPrecondition: one is missing. Unimplemented: several slices (MEGASCALE_NUM_SLICES).
class TPUClusterResolver final : public ClusterResolver {
 public:
  // "local", a name, an address, or empty. InvalidArgument: an address without a port.
  explicit TPUClusterResolver(std::string tpu = "");
  explicit TPUClusterResolver(TPUClusterResolverOptions options);

  std::string_view name() const override { return "tpu"; }
  // Returns the processes of the pod as workers; empty for one process, and for a TPU that is not this machine's.
  ClusterSpec cluster_spec() const override;
  std::optional<TaskId> task() const override;
  // Returns what was asked for: "local", a name, or an address.
  const std::string& tpu() const { return options_.tpu; }
  // Throws Unimplemented, with what was asked for, unless it is this machine's.
  void require_local() const;

 private:
  TPUClusterResolverOptions options_;
};

}  // namespace cohort
