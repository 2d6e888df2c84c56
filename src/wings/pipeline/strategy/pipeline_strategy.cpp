#include <algorithm>

#include "base/extension.h"
#include "base/fail.h"
#include "device/backend.h"
#include "strategy/combinations.h"
#include "strategy/parameter_layout.h"
#include "strategy/strategies/devices.h"
#include "wings/pipeline/strategy/pipeline_plan.h"

namespace cohort {

namespace {

// The replicas of a mesh, each with the devices of its stages.
struct Lines {
  Topology topology;
  std::vector<std::vector<std::string>> devices;  // [replica][stage]
};

Lines lines_of(const DeviceMesh& mesh) {
  const Axis& stages = stages_of(mesh);
  const auto& axes = mesh.axes();
  const auto place = std::find(axes.begin(), axes.end(), stages) - axes.begin();
  const DeviceSpec first = mesh.devices().front();
  Lines lines{.topology = axes.size() == 1 ? Topology::batch({{first}}) : mesh.submesh({{stages.name, 0}}).topology(),
              .devices = {}};
  for (int replica = 0; replica < lines.topology.size(); ++replica) {
    Coordinate at = mesh.coordinate(lines.topology.place(replica).device);
    std::vector<std::string>& own = lines.devices.emplace_back();
    for (int stage = 0; stage < stages.size; ++stage) {
      at[static_cast<std::size_t>(place)] = stage;
      own.push_back(mesh.device(at).to_string());
    }
  }
  return lines;
}

}  // namespace

const Axis& stages_of(const DeviceMesh& mesh) {
  const Axis* stages = nullptr;
  for (const Axis& axis : mesh.axes()) {
    if (axis.role == AxisRole::kStage && stages != nullptr) {
      fail<InvalidArgument>("[pipeline] the mesh ", mesh.to_string(), " has two axes of stages, \"", stages->name,
                            "\" and \"", axis.name, "\", wanted one");
    }
    if (axis.role == AxisRole::kStage) stages = &axis;
    if (axis.role != AxisRole::kSpace) continue;
    require_pair("[pipeline]", {.feature = kInputAxis, .said = c10::str("the axis \"", axis.name, "\" divides inputs")},
                 {.feature = kPipeline, .said = c10::str("the mesh is ", mesh.to_string())});
  }
  if (stages != nullptr) return *stages;
  fail<InvalidArgument>("[pipeline] the mesh ", mesh.to_string(), " has no axis of stages (the role kStage)");
}

void require_lines_here(const std::vector<LogicalDevice>& devices, std::size_t stages) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const LogicalDevice& own = devices[i];
    const LogicalDevice& first = devices[i - i % stages];
    if (own.torch_device == first.torch_device) continue;
    fail<Unimplemented>("[pipeline] ", own.name(), " and ", first.name(), " are different devices of this process for ",
                        "stages of one line, wanted one process for each GPU: MultiWorkerPipelineStrategy with a mesh ",
                        "of the workers' devices (--distribution_strategy=multi_worker_mirrored)");
  }
}

void take_layout(StrategyPlan& plan, const PipelineOptions& options) {
  const auto divides = [](const Axis& axis) { return axis.role == AxisRole::kModel; };
  const bool divided = options.mesh && std::any_of(options.mesh->axes().begin(), options.mesh->axes().end(), divides);
  if (!divided && options.layout.entries().empty()) return;
  if (!options.mesh) fail<InvalidArgument>("[pipeline] layout came without a mesh, whose axes it names");
  extension_of<ModelDivider>("mesh", "[pipeline] layout came").divide(plan, *options.mesh, options.layout);
}

StrategyPlan pipeline_plan(const PipelineOptions& options) {
  require_one_of("pipeline", options.devices, options.mesh);
  std::vector<std::string> all = options.devices;
  std::optional<Lines> lines;
  if (options.mesh) {
    lines = lines_of(*options.mesh);
    for (const auto& line : lines->devices) all.insert(all.end(), line.begin(), line.end());
  }
  const std::vector<LogicalDevice> chosen = choose_devices("pipeline", all);
  const std::size_t stages = lines ? lines->devices.front().size() : chosen.size();
  require_lines_here(chosen, stages);
  std::vector<LogicalDevice> leaders;
  for (std::size_t i = 0; i < chosen.size(); i += stages) leaders.push_back(chosen[i]);
  StrategyPlan plan = local_plan("pipeline", leaders);
  if (lines) plan.topology = lines->topology;
  plan.exchange = options.exchange;
  plan.sharding = options.sharding;
  take_layout(plan, options);
  take_schedule(plan, options, {.stages = static_cast<int>(stages)});
  plan.devices_per_replica = static_cast<int>(stages);
  return plan;
}

void take_schedule(StrategyPlan& plan, const PipelineOptions& options, PipelineSetup setup) {
  if (options.most_alive < 0) {
    fail<InvalidArgument>("[pipeline] most_alive is ", options.most_alive, ", wanted 0 (any number) or more");
  }
  setup.schedule = options.schedule;
  setup.cut = options.cut;
  setup.most_alive = options.most_alive;
  const PipelineSchedule schedule = checked_schedule(setup, microbatches_of(options.schedule));
  plan.runner = pipelines(setup);
  const int chunks = schedule.num_chunks();
  plan.in_microbatches = true;
  plan.extras.get<PipelineExtras>() = {.chunks = chunks, .cut = options.cut};
  if (static_cast<int>(options.cut.size()) <= chunks - 1) return;
  fail<InvalidArgument>("[pipeline] cut has ", options.cut.size(), " names, wanted at most ", chunks - 1, " for the ",
                        chunks, " chunks of the schedule ", schedule.name(), " on ", setup.stages, " stages");
}

PipelineStrategy::PipelineStrategy(const PipelineOptions& options)
    : Strategy(std::make_shared<StrategyCore>(pipeline_plan(options))) {}

}  // namespace cohort
