// MultiWorkerMirroredStrategy: synchronous data parallelism over the processes of a cluster.
//
//   cohort::MultiWorkerMirroredStrategy strategy;   // every worker runs the same program; TF_CONFIG says who is who
//
// A worker's replicas are numbered after those of the workers before it. Variables start as the chief's. Whatever the
// replicas reduce or gather, and whatever the strategy does, goes over all workers, so all of them have to make the
// same calls in the same order. When a worker is lost, or its program fails, every call of the others that needs it
// throws Unavailable with its name, and the programs have to be started again (from their checkpoints).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/cluster_spec.h"
#include "cohort/strategy.h"

namespace cohort {

// Options of the exchange of gradients between workers. The dtype in which they travel is that of
// ExchangeOptions::gradient_compression.
struct CommunicationOptions {
  // The back end: ring (Cohort's own collectives over TCP), gloo (Gloo's, in builds with Gloo; InvalidArgument in a job
  // with a secret or certificates, because Gloo has no TLS), mpi (MPI's, under mpirun, in builds with MPI), nccl (in
  // builds with NCCL, for replicas on GPUs), or auto: nccl on GPUs, else mpi if the cluster runs under mpirun, else
  // ring. Unimplemented: the build lacks it.
  std::string implementation = "auto";
  // The least bytes of a message of gradients to the other workers; 0: as ExchangeOptions says. If both are 0
  // and messages overlap with backward, those of CPUs have from 1 MiB for the last layers to 8 MiB for those before
  // them, those of GPUs 8 MiB, and the last one 1 MiB.
  int64_t bytes_per_pack = 0;
  // With true, gradients leave while backward computes those of earlier layers: of replicas on CPUs not over mpi.
  // Unset: on GPUs, and on CPUs unless all workers share the same cores, which would have to do the work of the
  // communication. It is the same on all workers. InvalidArgument: true where gradients leave after backward: where
  // GPUs add up after it, with sharding.stage 1, and on GPUs with stages 2 and 3 but over ring.
  std::optional<bool> overlap = std::nullopt;
  // With true, workers on the same machine (boot, process and network namespace, user) add up their gradients in memory
  // that they share; they send messages where they cannot. Over gloo and mpi they do so only where all workers are on
  // one machine; of several machines the engine sums everything. It is the same on all workers.
  bool shared_memory = true;
  // How collectives of all workers are made of messages: direct (each with each), hierarchical (within groups of
  // workers, and between them), tree (of pairs of pairs), or auto: direct up to 64 workers, and for more of them
  // whichever levels of groups take the least time by the costs of docs/performance.md. Workers of a machine that add
  // up in shared memory count once. NCCL has its own for tensors that stay on GPUs. It is the same on all workers.
  // InvalidArgument: another one than auto over gloo or mpi, which choose their own.
  std::string algorithm = "auto";
  // The longest wait for another worker that is alive.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

// The cluster that a strategy on a mesh spans.
struct ClusterOptions {
  // The cluster; null: resolve_cluster(), which reads the environment. Without a cluster, or with a single task, the
  // devices of the mesh are those of this process.
  ClusterResolverPtr resolver = nullptr;
  // Messages between workers. `bytes_per_pack` and `overlap` are refused (InvalidArgument): gradients leave after
  // backward, in the messages of MeshOptions::exchange.
  CommunicationOptions communication = {};
  // The deadline of the start, heartbeats and security. The strategy sets `info` itself.
  MembershipOptions membership = {};
};

struct MultiWorkerOptions {
  // The cluster; null: resolve_cluster(), which reads the environment. Without a cluster, or with a single task, the
  // strategy uses the devices of this process alone.
  ClusterResolverPtr resolver = nullptr;
  CommunicationOptions communication = {};  // the exchange of gradients between workers
  // The deadline of the start, heartbeats and security. The strategy sets `info` itself.
  MembershipOptions membership = {};
  // The devices of this worker's replicas, as in MirroredOptions. If the list is empty it is every visible GPU, of
  // which the workers of one machine take equal parts in the order of their local ranks. InvalidArgument: another
  // worker has more or fewer.
  std::vector<std::string> devices = {};
  // Options of the exchange of gradients between the replicas of this worker, and the dtype in which they travel, to
  // other workers, too, where they do not add up in common memory. The timeout is made longer than that of the
  // workers. With threads_per_replica 0 the cores are divided among the replicas of all workers that share them.
  ExchangeOptions exchange = {};
  // The exchange of parameters now and then in place of gradients in every step; the same on all workers. Replicas are
  // on CPUs and parameters float32 or float64 (Unimplemented otherwise).
  LocalSgdOptions local_sgd = {};
  ShardingOptions sharding = {};  // the states that the replicas of all workers share; the same on all workers
  // The devices of all workers on several axes that carry the batch, instead of `devices`; the same on all workers.
  // InvalidArgument: both came, a worker has no device in it, or an axis divides something else.
  std::optional<DeviceMesh> mesh = std::nullopt;
};

// A strategy of several processes, each of which makes its own; a handle as every Strategy.
class MultiWorkerStrategy : public Strategy {
 public:
  // Returns what told the cluster.
  const ClusterResolverPtr& cluster_resolver() const { return resolver_; }
  // Returns the number of workers, the chief included.
  int num_workers() const;
  // Returns the rank of this process among the workers; 0 is the chief.
  int worker_rank() const;
  // Returns the group of workers, for barriers and values of one's own; null when there is one worker.
  std::shared_ptr<Membership> membership() const;

 protected:
  // Takes a core and what told its cluster.
  explicit MultiWorkerStrategy(std::pair<std::shared_ptr<StrategyCore>, ClusterResolverPtr> joined);

 private:
  ClusterResolverPtr resolver_;
};

// Data parallelism over workers, each with a copy of the model on every replica.
class MultiWorkerMirroredStrategy : public MultiWorkerStrategy {
 public:
  // Enters the cluster: returns when all workers are there, says every few seconds who is missing, and gives up at the
  // deadline (DeadlineExceeded). InvalidArgument: a malformed cluster, or this process is none of its workers.
  // Unavailable: another worker has failed or ended meanwhile.
  explicit MultiWorkerMirroredStrategy(const MultiWorkerOptions& options = {});
};

}  // namespace cohort
