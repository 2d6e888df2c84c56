// Resolvers that read what a scheduler or a cloud tells: torchrun, Slurm, Kubernetes, SageMaker, Compute Engine.
// resolve_cluster() (cluster_resolver.h) finds the cluster of torchrun, Slurm and SageMaker by itself.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

struct TorchrunOptions {
  // The longest wait for the address of rank 0 in a run in which torchrun keeps MASTER_PORT for itself
  // (TORCHELASTIC_USE_AGENT_STORE).
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  Environment variables = process_environment();  // the variables that are read
};

// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun and the PyTorch operators of Kubernetes set them: all
// tasks are workers, and only worker 0 has an address. Without RANK, those that Kubeflow's trainer sets for torchrun on
// each node: PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT; each node is a worker then.
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

}  // namespace cohort
