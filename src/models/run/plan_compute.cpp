// Reads how the devices compute, and refuses what the current strategy's devices have no switch for.

#include "base/fail.h"
#include "device/backend.h"
#include "models/run/plan.h"

namespace cohort {

namespace {

std::optional<bool> switch_of(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text == "true");
}

void require_cards(const Strategy& strategy, const char* key, const std::string& value) {
  for (const LogicalDevice& device : strategy.worker_devices()) {
    if (backend_of(device.torch_device).is_card()) continue;
    fail<InvalidArgument>("[train] runtime.", key, " is ", value, ", but a replica of ", strategy.name(), " is on ",
                          device.torch_device.str(), ", which has no such switch; wanted GPUs (--num_gpus)");
  }
}

void require_switches(const Strategy& strategy) {
  for (const LogicalDevice& device : strategy.worker_devices()) {
    if (!backend_of(device.torch_device).records()) continue;
    fail<InvalidArgument>("[train] runtime.deterministic is true, but a replica of ", strategy.name(), " is on ",
                          device.torch_device.str(), ", whose programs XLA makes; its options (--xla_options) say ",
                          "whether they repeat their bits");
  }
}

}  // namespace

ComputeOptions plan_compute(const RuntimeConfig& runtime) {
  const ComputeOptions options{.tensor_float_32 = switch_of(runtime.tensor_float_32),
                               .cudnn_benchmark = switch_of(runtime.cudnn_benchmark),
                               .cudnn_enabled = runtime.cudnn_enabled,
                               .deterministic = runtime.deterministic};
  const Strategy strategy = current_strategy();
  if (options.tensor_float_32) require_cards(strategy, "tensor_float_32", runtime.tensor_float_32);
  if (options.cudnn_benchmark) require_cards(strategy, "cudnn_benchmark", runtime.cudnn_benchmark);
  if (!options.cudnn_enabled) require_cards(strategy, "cudnn_enabled", "false");
  if (options.deterministic) require_switches(strategy);
  return options;
}

}  // namespace cohort
