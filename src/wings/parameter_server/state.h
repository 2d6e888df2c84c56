// ParameterServerState: the state behind the handles ParameterServerStrategy and ClusterCoordinator.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/cluster/parameter_server_strategy.h"
#include "strategy/remote_variables.h"
#include "wings/parameter_server/client/server_variables.h"
#include "wings/parameter_server/coordinator/coordinator.h"

namespace cohort {

class ParameterServerState final : public RemoteCluster {
 public:
  ParameterServerState(ClusterResolverPtr resolver, const ParameterServerOptions& options);

  const ParameterServerOptions& options() const { return options_; }
  const ClusterResolverPtr& resolver() const { return resolver_; }
  const ClusterSpec& cluster() const { return cluster_; }
  const TaskId& task() const { return task_; }
  const std::string& address_of(const TaskId& task) const;
  std::vector<std::string> server_addresses() const;
  rpc::ElementType element_type() const;
  // Returns the number of workers on this worker's machine, itself included.
  int sharing_cores() const;

  ServerVariables& variables() override { return *variables_; }

  void register_step(const std::string& name, ParameterServerStrategy::StepFunction step);
  std::vector<std::string> step_names() const;
  bool has_step(const std::string& name) const { return steps_.contains(name); }

  bool serve();
  bool served() const { return served_; }
  bool has_coordinator() const { return coordinator_ != nullptr; }

  // Returns the coordinator of the chief, which is made at the first call.
  Coordinator& coordinator();

 private:
  RpcServerOptions serving_options(const std::string& quick) const;
  void serve_as_server();
  void serve_as_worker();

  ParameterServerOptions options_;
  ClusterResolverPtr resolver_;
  ClusterSpec cluster_;
  TaskId task_;
  std::shared_ptr<ServerVariables> variables_;
  std::map<std::string, ParameterServerStrategy::StepFunction> steps_;
  bool served_ = false;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace cohort
