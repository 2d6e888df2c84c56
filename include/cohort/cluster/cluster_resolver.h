// Resolvers: a process learns which cluster it is part of, from the environment that its launcher, scheduler or cloud
// sets. All read it anew on every call, throw InvalidArgument or FailedPrecondition naming the variable and what was
// found, and may be called from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/cluster/cluster_spec.h"

namespace cohort {

// The variables that a resolver reads; tests and launchers give it others than those of the process.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
// Returns the variables of this process.
Environment process_environment();
// Returns these variables and no others.
Environment environment_of(std::map<std::string, std::string> variables);

// Tells which cluster this process is part of, and as which task.
class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;

  virtual std::string_view name() const = 0;  // "tf_config", "slurm", ...

  // Returns the whole cluster; empty where this process is not part of one.
  virtual ClusterSpec cluster_spec() const = 0;
  // Returns the task of this process; nothing where it is not part of a cluster or the user has to say.
  virtual std::optional<TaskId> task() const = 0;

  // "google" or empty, as TensorFlow has it; nothing here depends on it.
  virtual std::string environment() const { return ""; }
  // Returns the protocol that master() names.
  virtual std::string rpc_layer() const { return "grpc"; }

  // Returns the address of a task to connect to, "grpc://host:port"; empty without a cluster. The default is the
  // coordination leader.
  virtual std::string master(const std::optional<TaskId>& task = std::nullopt) const;

  // Returns the devices of this process by type, such as {"GPU": 4}.
  virtual std::map<std::string, int> num_accelerators() const;
};

// The type by which resolvers are passed around.
using ClusterResolverPtr = std::shared_ptr<const ClusterResolver>;

struct TFConfigOptions {
  // These take the place of what TF_CONFIG says.
  std::optional<std::string> task_type = std::nullopt;
  std::optional<int> task_id = std::nullopt;            // in place of task.index
  std::optional<std::string> rpc_layer = std::nullopt;  // in place of rpc_layer
  Environment variables = process_environment();        // the variables, of which TF_CONFIG is read
};

// Reads TF_CONFIG, JSON: {"cluster": {job: [addresses]}, "task": {"type": job, "index": i}}. If the variable is not set
// there is no cluster. task() throws InvalidArgument for a task that the cluster does not have (an evaluator may be
// missing), and master() without a task gives the address of this process's own task, both as TensorFlow's resolver
// does. The protocol is that of "rpc_layer"; empty: none.
class TFConfigResolver final : public ClusterResolver {
 public:
  explicit TFConfigResolver(TFConfigOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const override { return "tf_config"; }
  ClusterSpec cluster_spec() const override;
  std::optional<TaskId> task() const override;
  std::string rpc_layer() const override;
  std::string master(const std::optional<TaskId>& task = std::nullopt) const override;

 private:
  TFConfigOptions options_;
};

struct SimpleResolverOptions {
  ClusterSpec cluster = {};                   // the tasks and their addresses
  std::optional<TaskId> task = std::nullopt;  // this process; nothing: it is not part of the cluster
  std::string master = "";                    // the answer of master() when no task is asked for
  std::string environment = "";               // the answer of environment()
  std::string rpc_layer = "grpc";             // the protocol that master() names
  std::optional<std::map<std::string, int>> num_accelerators = std::nullopt;  // nothing: what the machine has
};

// A cluster that the program describes itself.
class SimpleResolver final : public ClusterResolver {
 public:
  explicit SimpleResolver(SimpleResolverOptions options) : options_(std::move(options)) {}
  std::string_view name() const override { return "simple"; }
  ClusterSpec cluster_spec() const override { return options_.cluster; }
  std::optional<TaskId> task() const override { return options_.task; }
  std::string environment() const override { return options_.environment; }
  std::string rpc_layer() const override { return options_.rpc_layer; }
  std::string master(const std::optional<TaskId>& task = std::nullopt) const override;
  std::map<std::string, int> num_accelerators() const override;

 private:
  SimpleResolverOptions options_;
};

struct UnionOptions {
  std::optional<TaskId> task = std::nullopt;            // nothing: the first resolver's
  std::optional<std::string> rpc_layer = std::nullopt;  // nothing: the first resolver's
};

// Takes several clusters as one: tasks of the same job follow each other in the order of the resolvers. Where a member
// gives a job's tasks by index with gaps, the indices of that job are kept and may not collide (InvalidArgument).
class UnionResolver final : public ClusterResolver {
 public:
  // No resolver at all: InvalidArgument.
  explicit UnionResolver(std::vector<ClusterResolverPtr> resolvers, UnionOptions options = {});
  std::string_view name() const override { return "union"; }
  ClusterSpec cluster_spec() const override;
  std::optional<TaskId> task() const override;
  std::string environment() const override { return resolvers_.front()->environment(); }
  std::string rpc_layer() const override;
  std::map<std::string, int> num_accelerators() const override { return resolvers_.front()->num_accelerators(); }

 private:
  std::vector<ClusterResolverPtr> resolvers_;
  UnionOptions options_;
};

struct TorchrunOptions {
  // The longest wait for the address of rank 0 in a run in which torchrun keeps MASTER_PORT for itself
  // (TORCHELASTIC_USE_AGENT_STORE).
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  Environment variables = process_environment();  // the variables that are read
};

// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun and the PyTorch operators of Kubernetes set them: all
// tasks are workers, and only worker 0 has an address.
class TorchrunResolver final : public ClusterResolver {
 public:
  explicit TorchrunResolver(TorchrunOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const override { return "torchrun"; }
  ClusterSpec cluster_spec() const override;
  std::optional<TaskId> task() const override;

 private:
  TorchrunOptions options_;
};

struct SlurmOptions {
  // Tasks of each job, given to the ranks in the order of the jobs' names. If it is empty all are workers.
  std::map<std::string, int> jobs = {};
  int port_base = 8888;                              // a task's port: this plus its index on its node
  std::optional<int> gpus_per_node = std::nullopt;   // nothing: as many as are visible
  std::optional<int> gpus_per_task = std::nullopt;   // nothing: gpus_per_node / most tasks of a node
  std::optional<int> tasks_per_node = std::nullopt;  // nothing: SLURM_STEP_TASKS_PER_NODE
  std::string rpc_layer = "grpc";                    // the protocol that master() names
  Environment variables = process_environment();     // the variables that are read
};

// Reads a Slurm step: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE.
class SlurmResolver final : public ClusterResolver {
 public:
  explicit SlurmResolver(SlurmOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const override { return "slurm"; }
  ClusterSpec cluster_spec() const override;
  std::optional<TaskId> task() const override;
  std::string rpc_layer() const override { return options_.rpc_layer; }
  std::map<std::string, int> num_accelerators() const override;
  // Returns the GPUs of this task, by their indices on the node, to set CUDA_VISIBLE_DEVICES to before CUDA is used.
  std::vector<int> visible_gpus() const;

 private:
  SlurmOptions options_;
};

struct MpiOptions {
  Environment variables = process_environment();  // the variables that are read
};

// Reads what mpirun tells a process that it started (Open MPI, MPICH and others over PMI): all tasks are workers. Only
// worker 0 has an address: MASTER_ADDR and MASTER_PORT where they are exported, else what MPI itself tells (builds with
// MPI).
class MpiResolver final : public ClusterResolver {
 public:
  explicit MpiResolver(MpiOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const override { return "mpi"; }
  ClusterSpec cluster_spec() const override;
  std::optional<TaskId> task() const override;

 private:
  MpiOptions options_;
};

// The request of an HttpFetch; for tests another than the network. Throws Unavailable.
struct HttpRequest {
  std::string url;                                               // a URL of http or https
  std::vector<std::string> headers = {};                         // lines such as "Accept: application/json"
  std::optional<std::string> body = std::nullopt;                // posted; nothing: GET
  std::string ca_file = "";                                      // trusted for https; empty: the system's
  std::chrono::milliseconds timeout = std::chrono::seconds(30);  // the longest time of the whole exchange
};
// Sends a request and returns the body of the answer.
using HttpFetch = std::function<std::string(const HttpRequest&)>;
// Fetches over the network, by libcurl.
HttpFetch http_fetch();

struct KubernetesOptions {
  // The label selectors that tell which pods make up a job.
  std::map<std::string, std::vector<std::string>> job_labels = {{"worker", {"job-name=cohort"}}};
  int port = 8470;  // the port of every pod
  // The namespace of the pods; empty: this pod's (the service account's).
  std::string ns = "";
  std::optional<TaskId> task = std::nullopt;  // nothing: the pod whose name is HOSTNAME
  std::string service_account = "/var/run/secrets/kubernetes.io/serviceaccount";  // token, ca.crt, namespace
  HttpFetch fetch = http_fetch();                                                 // the function that asks the API
  Environment variables = process_environment();                                  // the variables that are read
};

// Asks the Kubernetes API for the pods, with the pod's service account, which must be allowed to list pods. Addresses
// are pod IPs in the order of the pods' names. A pod that is not running: FailedPrecondition.
class KubernetesResolver final : public ClusterResolver {
 public:
  explicit KubernetesResolver(KubernetesOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const override { return "kubernetes"; }
  ClusterSpec cluster_spec() const override;
  std::optional<TaskId> task() const override;

 private:
  KubernetesOptions options_;
};

struct SageMakerOptions {
  int port = 2223;                                // the port of every host
  Environment variables = process_environment();  // the variables that are read
};

// Reads SM_HOSTS (a JSON list) and SM_CURRENT_HOST: all are workers, in the order of the hosts' names.
class SageMakerResolver final : public ClusterResolver {
 public:
  explicit SageMakerResolver(SageMakerOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const override { return "sagemaker"; }
  ClusterSpec cluster_spec() const override;
  std::optional<TaskId> task() const override;

 private:
  SageMakerOptions options_;
};

struct GceOptions {
  std::string project;             // the project; needed
  std::string zone;                // the zone of the group; needed
  std::string instance_group;      // the name of the group; needed
  int port = 8470;                 // the port of every instance
  TaskId task = {};                // this process
  std::string rpc_layer = "grpc";  // the protocol that master() names
  // The bearer token of the API; empty: the instance's own, from the metadata server.
  std::string token = "";
  HttpFetch fetch = http_fetch();  // the function that asks the API
};

// Takes the running instances of a Compute Engine instance group, by name, at their internal addresses.
class GceResolver final : public ClusterResolver {
 public:
  // InvalidArgument: no project, zone or group.
  explicit GceResolver(GceOptions options);
  std::string_view name() const override { return "gce"; }
  ClusterSpec cluster_spec() const override;
  std::optional<TaskId> task() const override { return options_.task; }
  std::string rpc_layer() const override { return options_.rpc_layer; }

 private:
  GceOptions options_;
};

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

// Returns the first of these that the environment speaks of: TF_CONFIG, torchrun's variables, Open MPI's, Slurm's (a
// step of more than one task, whether or not it sets PMI's variables too), those of MPICH and others over PMI,
// SageMaker's. If it speaks of none of them the result is a resolver without a cluster.
ClusterResolverPtr resolve_cluster(const Environment& variables = process_environment());

// Makes a cluster from flags (TF Model Garden's --worker_hosts and --task_index): comma-separated addresses. Sets
// TF_CONFIG of this process, unless it is set, and returns the number of workers; 1 when there are no hosts.
// InvalidArgument: several hosts and no index, or an index that is out of range.
int configure_cluster(const std::string& worker_hosts, int task_index = -1);

}  // namespace cohort
