#include "base/fail.h"
#include "strategy/strategies/preset.h"

namespace cohort {

namespace {

LogicalDevice parameter_device(const CentralStorageOptions& options, const std::vector<LogicalDevice>& compute) {
  if (!options.parameter_device.empty()) return find_logical_device(options.parameter_device);
  return compute.size() == 1 ? compute.front() : find_logical_device("/CPU:0");
}

StrategyPlan plan(const CentralStorageOptions& options) {
  const std::string& ops = options.exchange.cross_device_ops;
  if (ops != "auto" && ops != "reduction_to_one_device") {
    fail<InvalidArgument>("[strategy] central_storage: cross_device_ops is \"", ops,
                          "\", but reductions run on the parameter device; wanted auto");
  }
  StrategyPlan plan =
      build_plan({.name = "central_storage", .devices = options.compute_devices, .exchange = options.exchange});
  plan.placement = make_central(plan.devices, parameter_device(options, plan.devices));
  plan.exchange.cross_device_ops = "reduction_to_one_device";
  return plan;
}

}  // namespace

CentralStorageStrategy::CentralStorageStrategy(const CentralStorageOptions& options)
    : Strategy(std::make_shared<StrategyCore>(plan(options))) {}

}  // namespace cohort
