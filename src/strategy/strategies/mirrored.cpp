#include <c10/util/accumulate.h>

#include "base/extension.h"
#include "base/fail.h"
#include "strategy/strategies/devices.h"
#include "strategy/strategies/preset.h"

namespace cohort {

namespace {

// Lines of as many devices as there are parts take an example together.
void divide_inputs(StrategyPlan& plan, const MirroredOptions& options) {
  const auto& train = options.input_partition_dims;
  const auto& eval = options.eval_input_partition_dims;
  if (train.empty() && eval.empty()) return;
  if (options.mesh) {
    fail<InvalidArgument>(
        "[strategy] mirrored: input_partition_dims came beside a mesh; MeshStrategy takes both, where ",
        "the mesh has an axis for the parts");
  }
  const auto& divider = extension_of<InputDivider>("mesh", "[strategy] mirrored: input_partition_dims came");
  require_lines("[strategy] mirrored:", plan.devices);
  const auto parts = static_cast<int>(c10::multiply_integers(train.empty() ? eval : train));
  const auto devices = static_cast<int>(plan.devices.size());
  if (parts < 1 || devices % parts != 0) {
    fail<InvalidArgument>("[strategy] mirrored: input_partition_dims has ", parts, " parts, and there are ", devices,
                          " devices, wanted a multiple of it");
  }
  std::vector<std::string> names;
  for (const LogicalDevice& device : plan.devices) names.push_back(device.spec.to_string());
  plan.topology = DeviceMesh({devices / parts, parts}, {"batch", "space"}, names).topology();
  divider.divide(plan, "mirrored", "space", train, eval);
}

// Returns the names of all logical CPUs if no GPU is visible, as TensorFlow takes them.
std::vector<std::string> all_cpus_without_gpus() {
  if (!list_logical_devices("GPU").empty()) return {};
  std::vector<std::string> names;
  for (const LogicalDevice& cpu : list_logical_devices("CPU")) names.push_back(cpu.name());
  return names;
}

StrategyPlan mirrored_plan(const MirroredOptions& options) {
  StrategyPreset preset{.name = "mirrored",
                        .devices = options.devices,
                        .mesh = options.mesh,
                        .exchange = options.exchange,
                        .sharding = options.sharding};
  if (preset.devices.empty() && !preset.mesh) preset.devices = all_cpus_without_gpus();
  StrategyPlan plan = build_plan(preset);
  divide_inputs(plan, options);
  return plan;
}

}  // namespace

MirroredStrategy::MirroredStrategy(const MirroredOptions& options)
    : Strategy(std::make_shared<StrategyCore>(mirrored_plan(options))) {}

}  // namespace cohort
