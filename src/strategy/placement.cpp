#include "strategy/placement.h"

#include <algorithm>

#include "base/fail.h"
#include "strategy/combinations.h"
#include "strategy/remote_variables.h"

namespace cohort {

namespace {

class Replicated final : public Placement {
 public:
  explicit Replicated(std::vector<LogicalDevice> devices) : devices_(std::move(devices)) {}

  const std::vector<LogicalDevice>& devices() const override { return devices_; }
  const LogicalDevice& device(int local_id) const override { return devices_[static_cast<std::size_t>(local_id)]; }
  const LogicalDevice& module_device(int local_id) const override { return device(local_id); }
  int holder(int local_id) const override { return local_id; }

  PathChoice path(const PathFacts& facts) const override {
    if (facts.recorded) {
      return {.path = GradientPath::kRecorded, .no_messages = "they are summed within the recorded step"};
    }
    // Replicas that reach each other's memory have the slots once as it is.
    const bool shares = (facts.in_place == GradientPath::kSharedMemory && !facts.shares_gradients) || !facts.sharded;
    if (facts.add_in_place && facts.has_kernels && shares) {
      return {.path = facts.in_place, .no_messages = facts.no_messages_in_place};
    }
    return {.path = facts.sharded ? GradientPath::kSharded : GradientPath::kMessages, .no_messages = facts.no_messages};
  }

 private:
  std::vector<LogicalDevice> devices_;
};

class Central final : public Placement {
 public:
  Central(std::vector<LogicalDevice> replicas, LogicalDevice parameter_device)
      : replicas_(std::move(replicas)), devices_{std::move(parameter_device)} {}

  const std::vector<LogicalDevice>& devices() const override { return devices_; }
  const LogicalDevice& device(int /*local_id*/) const override { return devices_.front(); }
  const LogicalDevice& module_device(int local_id) const override {
    return replicas_[static_cast<std::size_t>(local_id)];
  }
  int holder(int local_id) const override { return local_id; }
  PathChoice path(const PathFacts& facts) const override {
    if (facts.recorded) {
      require_pair(
          "[strategy] central storage:", {.feature = kCentral, .said = "variables lie on " + devices_.front().name()},
          {.feature = kXlaDevices, .said = "replicas are on " + replicas_.front().name()});
    }
    return {.path = GradientPath::kParameterDevice, .no_messages = facts.no_messages_in_place};
  }

 private:
  std::vector<LogicalDevice> replicas_;
  std::vector<LogicalDevice> devices_;
};

// Central storage in memory that all replicas reach.
class OneCopy final : public Placement {
 public:
  explicit OneCopy(LogicalDevice parameter_device) : devices_{std::move(parameter_device)} {}

  const std::vector<LogicalDevice>& devices() const override { return devices_; }
  const LogicalDevice& device(int /*local_id*/) const override { return devices_.front(); }
  const LogicalDevice& module_device(int /*local_id*/) const override { return devices_.front(); }
  int holder(int /*local_id*/) const override { return 0; }
  PathChoice path(const PathFacts& facts) const override {
    return {.path = facts.has_kernels ? GradientPath::kSharedMemory : GradientPath::kParameterDevice,
            .no_messages = facts.no_messages_in_place};
  }

 private:
  std::vector<LogicalDevice> devices_;
};

}  // namespace

bool all_on_cpu(const std::vector<LogicalDevice>& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [](const LogicalDevice& device) { return device.torch_device.is_cpu(); });
}

std::unique_ptr<VariableHome> Placement::home(std::shared_ptr<VariableComponents> components,
                                              const torch::Tensor& /*value*/) const {
  return make_home_here(std::move(components));
}

std::shared_ptr<Placement> make_replicated(std::vector<LogicalDevice> devices) {
  return std::make_shared<Replicated>(std::move(devices));
}

std::shared_ptr<Placement> make_central(std::vector<LogicalDevice> replicas, LogicalDevice parameter_device) {
  if (all_on_cpu(replicas) && all_on_cpu({parameter_device})) {
    return std::make_shared<OneCopy>(std::move(parameter_device));
  }
  return std::make_shared<Central>(std::move(replicas), std::move(parameter_device));
}

ServersPlacement::ServersPlacement(std::vector<LogicalDevice> replicas, LogicalDevice parameter_device,
                                   std::shared_ptr<RemoteCluster> cluster)
    : here_(make_central(std::move(replicas), std::move(parameter_device))), cluster_(std::move(cluster)) {}

ServersPlacement::~ServersPlacement() = default;

RemoteVariables& ServersPlacement::variables() const {
  return cluster_->variables();
}

PathChoice ServersPlacement::path(const PathFacts& /*facts*/) const {
  return {.path = GradientPath::kServers, .no_messages = "they go to the parameter servers by variable"};
}

std::unique_ptr<VariableHome> ServersPlacement::home(std::shared_ptr<VariableComponents> components,
                                                     const torch::Tensor& value) const {
  if (components->on_read()) return make_home_here(std::move(components));
  return make_home_elsewhere(std::move(components), variables(), value);
}

double ServersPlacement::step_weight() const {
  return variables().weight();
}

void ServersPlacement::require_here(const std::string& message) const {
  fail<Unimplemented>(message);
}

}  // namespace cohort
