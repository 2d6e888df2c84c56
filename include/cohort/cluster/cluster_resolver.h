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

// Returns the first of these that the environment speaks of: TF_CONFIG, torchrun's variables, Slurm's (a step of more
// than one task, whether or not it sets PMI's variables too; not a step of Open MPI's daemons), those of Open MPI,
// MPICH and others over PMI, SageMaker's. If it speaks of none of them the result is a resolver without a cluster.
// Unimplemented: this build lacks the wing that reads the variables.
ClusterResolverPtr resolve_cluster(const Environment& variables = process_environment());

// Makes a cluster from flags (TF Model Garden's --worker_hosts and --task_index): comma-separated addresses. Sets
// TF_CONFIG of this process, unless it is set, and returns the number of workers; 1 when there are no hosts.
// InvalidArgument: several hosts and no index, or an index that is out of range.
int configure_cluster(const std::string& worker_hosts, int task_index = -1);

}  // namespace cohort
