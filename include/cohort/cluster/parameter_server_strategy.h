// ParameterServerStrategy: variables live on parameter servers; workers compute at their own pace, and a coordinator
// hands out the work. One program for all of them:
//
//   cohort::ParameterServerStrategy strategy;                 // TF_CONFIG says who is who
//   auto net = strategy.mirror([] { return Net(); });
//   auto adam = strategy.optimizer(net, cohort::Adam());
//   strategy.register_step("train", [&](const std::vector<torch::Tensor>& batch) { ... });
//   if (strategy.serve()) return 0;                           // workers and servers, until the run is over
//   cohort::ClusterCoordinator coordinator(strategy);         // the chief
//   for (...) coordinator.schedule("train", {x, y});
//   coordinator.join();
#pragma once

#include <torch/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/cluster_spec.h"
#include "cohort/cluster/consistency.h"
#include "cohort/cluster/partitioners.h"
#include "cohort/cluster/per_worker_dataset.h"
#include "cohort/cluster/sharded_variable.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"

namespace cohort {

class ParameterServerState;

struct ParameterServerOptions {
  // The cluster of a chief, workers and ps; null: resolve_cluster(), which reads the environment.
  ClusterResolverPtr resolver = nullptr;
  // The function that cuts variables into parts (partitioners.h); empty: no variable is cut.
  Partitioner variable_partitioner = {};
  Consistency consistency = {};  // the distance that the workers may have
  // The servers that have each shard, 1 or 2. With 2 the loss of a server loses no update.
  int replicas = 1;
  // The dtype in which floating-point values and gradients travel: "bfloat16", "float16", or "" for their own.
  std::string compression = "";
  // The folder of the coordinator's checkpoints and of its identity after a restart. If it is empty there are no
  // checkpoints and no identity.
  std::filesystem::path directory = {};
  // Who may speak to the tasks. Without security a task listens on loopback only, unless allow_insecure is set.
  SecurityOptions security = {};
  bool allow_insecure = false;  // lets tasks without security listen where other machines reach them
  // The longest wait for all servers at the start.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  // The silence after which a task is lost.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(5);
  // The longest wait for a lost server to come back.
  std::chrono::milliseconds server_timeout = std::chrono::minutes(10);
  // The longest wait for a lost coordinator to come back.
  std::chrono::milliseconds coordinator_timeout = std::chrono::hours(1);
  // The longest of all other waits, such as those for work to go on and for the answer of a server.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // The devices of a worker's replicas, as in MirroredOptions.
  std::vector<std::string> devices = {};
  // Options of the exchange of gradients between the replicas of a worker.
  ExchangeOptions exchange = {};
};

// The strategy of one task; a handle as every Strategy.
class ParameterServerStrategy : public Strategy {
 public:
  // InvalidArgument: the cluster has no chief, no worker or no ps, or this process is none of them (an evaluator
  // aside).
  explicit ParameterServerStrategy(const ParameterServerOptions& options = {});

  // Returns a strategy as what it was made as; nothing: it is another one, or an evaluator's.
  static std::optional<ParameterServerStrategy> of(const Strategy& strategy);

  // Returns what told the cluster.
  const ClusterResolverPtr& cluster_resolver() const;
  // Returns this process's task.
  const TaskId& task() const;
  // Returns whether this process is the chief, which hands out the work.
  bool is_coordinator() const;

  // A function that workers can be asked to run: it takes tensors and returns tensors, in cross-replica context. It
  // runs at least once for each time that it is scheduled, and has to make the same updates in the same order each
  // time. InvalidArgument: the name is taken; FailedPrecondition: after serve().
  using StepFunction = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>& arguments)>;
  // Names a step, before serve() and on all tasks alike.
  void register_step(const std::string& name, StepFunction step) const;

  // Makes a variable that is read and updated by rows; see sharded_variable.h.
  ShardedVariable sharded_variable(const ShardedVariableOptions& options) const;

  // Makes a dataset that each worker makes for itself, of its part of the input; before or after serve(), outside
  // steps.
  PerWorkerDataset create_per_worker_dataset(std::function<Dataset(const InputContext&)> make) const;

  // Does, on workers and servers, what the others ask for, and returns true when the run is over. Returns false at once
  // on the chief and on an evaluator. Nothing can be declared after this call. Unavailable: the coordinator stayed away
  // for coordinator_timeout; FailedPrecondition: another task runs another program.
  bool serve() const;

 private:
  friend class Access;

  explicit ParameterServerStrategy(std::shared_ptr<ParameterServerState> state);
  ParameterServerStrategy(const Strategy& strategy, std::shared_ptr<ParameterServerState> state)
      : Strategy(strategy), state_(std::move(state)) {}

  std::shared_ptr<ParameterServerState> state_;
};

}  // namespace cohort
