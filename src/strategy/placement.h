// Placement: the place where a strategy's variables live, and what follows from that for those who use them. There is
// one class for each way. A strategy makes the one that it stands for; everybody else calls it and does not ask which
// it is.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/device.h"
#include "strategy/variable_home.h"

namespace cohort {

class RemoteCluster;
class RemoteVariables;

// The way from gradients to parameters. step/exchange/ has one class for each, in this order.
enum class GradientPath {
  kSharedMemory,     // each replica sums and updates its range, for all copies
  kOverWorkers,      // the same, and the sums of this process go on over all workers in between
  kLocalSteps,       // as kSharedMemory, and workers bring their own parameters together now and then
  kMessages,         // the replicas send each other their gradients, and each updates its own copy
  kSharded,          // the replicas send gradients to those who share the states, and get the parameters from them
  kParameterDevice,  // the gradients are summed and applied on the parameter device
  kServers,          // other processes apply them
  kRecorded,         // the sums and the update are a part of the recorded step, in every replica
};

struct PathChoice {
  GradientPath path = GradientPath::kMessages;
  const char* no_messages = nullptr;  // the reason why gradients do not become messages; null where they do
};

// The facts that the choice of a path depends on, apart from the placement.
struct PathFacts {
  bool add_in_place = false;      // the gradients can and are to be added where they lie, not by other cross-device ops
  bool has_kernels = false;       // the update has a kernel for every dtype of the parameters
  bool recorded = false;          // the replicas' work is recorded and begun together
  bool sharded = false;           // the replicas are to share the states of the optimizer
  bool shares_gradients = false;  // the replicas are to share the gradients, too
  // The path of gradients that are added where they lie.
  GradientPath in_place = GradientPath::kSharedMemory;
  // The reason why gradients that are added where they lie are no messages.
  const char* no_messages_in_place = nullptr;
  // The reason why replicas that each update their own copy send no messages; null where they do.
  const char* no_messages = nullptr;
};

class Placement {
 public:
  virtual ~Placement() = default;

  // Returns the devices of the variables: one for each local replica, or the only one.
  virtual const std::vector<LogicalDevice>& devices() const = 0;
  // Returns the device of a local replica's component of a variable.
  virtual const LogicalDevice& device(int local_id) const = 0;
  // Returns the device on which the copy of a module is made that a local replica computes with.
  virtual const LogicalDevice& module_device(int local_id) const = 0;
  // Returns the local replica that holds the memory of a local replica's variables: itself, or the first one where all
  // use the same memory.
  virtual int holder(int local_id) const = 0;

  // Returns how gradients become parameters.
  virtual PathChoice path(const PathFacts& facts) const = 0;

  // Returns the home of a new variable with these components, which all have this value.
  virtual std::unique_ptr<VariableHome> home(std::shared_ptr<VariableComponents> components,
                                             const torch::Tensor& value) const;
  // Returns the part of a step's examples that this process has; below 1 where several share a step.
  virtual double step_weight() const { return 1.0; }
  // Throws Unimplemented with this message where other processes keep the variables.
  virtual void require_here(const std::string& /*message*/) const {}
};

// Makes the placement of a copy of every variable on every replica.
std::shared_ptr<Placement> make_replicated(std::vector<LogicalDevice> devices);
// Makes the placement of one copy of every variable, on the parameter device. Replicas on CPUs use it where it lies,
// others copy it.
std::shared_ptr<Placement> make_central(std::vector<LogicalDevice> replicas, LogicalDevice parameter_device);

// Variables that other processes keep; this one has copies of them on the parameter device.
class ServersPlacement final : public Placement {
 public:
  ServersPlacement(std::vector<LogicalDevice> replicas, LogicalDevice parameter_device,
                   std::shared_ptr<RemoteCluster> cluster);
  ServersPlacement(const ServersPlacement&) = delete;
  ServersPlacement& operator=(const ServersPlacement&) = delete;
  ~ServersPlacement() override;

  const std::shared_ptr<RemoteCluster>& cluster() const { return cluster_; }
  RemoteVariables& variables() const;

  const std::vector<LogicalDevice>& devices() const override { return here_->devices(); }
  const LogicalDevice& device(int local_id) const override { return here_->device(local_id); }
  const LogicalDevice& module_device(int local_id) const override { return here_->module_device(local_id); }
  int holder(int local_id) const override { return here_->holder(local_id); }
  PathChoice path(const PathFacts& facts) const override;
  std::unique_ptr<VariableHome> home(std::shared_ptr<VariableComponents> components,
                                     const torch::Tensor& value) const override;
  double step_weight() const override;
  void require_here(const std::string& message) const override;

 private:
  std::shared_ptr<Placement> here_;  // the placement of the copies in this process
  std::shared_ptr<RemoteCluster> cluster_;
};

// Returns whether all devices are CPUs, so that their replicas reach each other's memory.
bool all_on_cpu(const std::vector<LogicalDevice>& devices);

}  // namespace cohort
