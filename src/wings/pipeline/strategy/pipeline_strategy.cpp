#include <algorithm>
#include <map>
#include <set>

#include "base/extension.h"
#include "base/fail.h"
#include "device/backend.h"
#include "strategy/combinations.h"
#include "strategy/holders.h"
#include "strategy/parameter_layout.h"
#include "strategy/strategies/devices.h"
#include "strategy/worker_group.h"
#include "wings/pipeline/strategy/pipeline_plan.h"

namespace cohort {

namespace {

// Returns the stages that a process has of the lines that it takes part in.
std::set<int> stages_at(const Topology& mesh, std::size_t axis, int process) {
  std::set<int> stages;
  for (const int replica : mesh.replicas_of(process)) stages.insert(mesh.coordinate(replica)[axis]);
  return stages;
}

// Returns the topology whose replicas are runs of stages that one process has of a line, each on the device of its
// first stage. The axis of stages is there where those of a line lie with several processes.
Topology runs_of_stages(const DeviceMesh& mesh) {
  const Topology& own = mesh.topology();
  std::vector<Axis> axes = own.axes();
  const auto place = static_cast<std::size_t>(std::find(axes.begin(), axes.end(), stages_of(mesh)) - axes.begin());
  const auto each = static_cast<int>(stages_at(own, place, 0).size());
  const auto fail_to_divide = [&](int process) {
    fail<InvalidArgument>("[pipeline] worker ", process, " has other stages of the mesh ", mesh.to_string(), " than ",
                          each, " that follow each other, as worker 0 has; wanted as many devices on every worker, a ",
                          "multiple or a divisor of those of one stage");
  };
  for (int process = 0; process < own.num_processes(); ++process) {
    const std::set<int> stages = stages_at(own, place, process);
    const bool fits = static_cast<int>(stages.size()) == each && *stages.begin() % each == 0 &&
                      *stages.rbegin() - *stages.begin() == each - 1;
    if (!fits) fail_to_divide(process);
  }
  axes[place].size /= each;
  std::vector<Topology::Place> places;
  for (int replica = 0; replica < own.size(); ++replica) {
    const Coordinate at = own.coordinate(replica);
    if (at[place] % each != 0) continue;
    Coordinate last = at;
    last[place] += each - 1;
    if (own.place(own.replica_at(last)).process != own.place(replica).process)
      fail_to_divide(own.place(replica).process);
    places.push_back(own.place(replica));
  }
  if (axes[place].size == 1) {
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(place));
    if (axes.empty()) axes.push_back({.name = "batch"});
  }
  return {std::move(axes), std::move(places)};
}

// Fails unless the stages that this process has of each line are on CPUs or on one and the same GPU.
void require_lines_here(const StrategyPreset& preset, const Axis& stages) {
  const Topology& topology = preset.mesh->topology();
  std::map<int, LogicalDevice> first;  // by line
  for (int r = 0; r < topology.size(); ++r) {
    if (!is_own(preset, topology.place(r).device)) continue;
    const LogicalDevice own = find_logical_device(topology.place(r).device.short_form());
    const LogicalDevice& other = first.emplace(topology.line_number(stages.name, r), own).first->second;
    if (own.torch_device == other.torch_device) continue;
    fail<Unimplemented>("[pipeline] ", own.name(), " and ", other.name(), " are different devices of this process for ",
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

// Returns the devices of the options as a mesh.
DeviceMesh mesh_of(const PipelineOptions& options) {
  std::vector<std::string> names;
  for (const LogicalDevice& device : choose_devices("pipeline", options.devices)) names.push_back(device.name());
  const int stages = static_cast<int>(names.size());
  return {{stages}, {"stage"}, names};
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

StrategyPreset pipeline_preset(const std::string& name, const PipelineOptions& options) {
  const DeviceMesh mesh = options.mesh ? *options.mesh : mesh_of(options);
  (void)stages_of(mesh);
  return {.name = name,
          .devices = options.mesh ? options.devices : std::vector<std::string>(),
          .mesh = mesh,
          .divides = {AxisRole::kModel, AxisRole::kStage},
          .replicas = runs_of_stages(mesh),
          .exchange = options.exchange,
          .sharding = options.sharding};
}

StrategyPlan pipeline_plan(const StrategyPreset& preset, const PipelineOptions& options) {
  StrategyPlan plan = build_plan(preset);
  require_lines_here(preset, stages_of(*preset.mesh));
  take_layout(plan, options);
  return plan;
}

void take_stages(StrategyPlan& plan, const StrategyPreset& preset, const PipelineOptions& options) {
  PipelineSetup setup{.stages = stages_of(*preset.mesh).size};
  if (const Axis* axis = stage_axis(plan.topology)) {
    setup.stages_here = setup.stages / axis->size;
    setup.first_stage = stage_place_of(plan.topology, plan.workers->rank()) * setup.stages_here;
    setup.axis = axis->name;
  }
  plan.devices_per_replica = setup.axis.empty() ? setup.stages : setup.stages_here;
  take_schedule(plan, options, setup);
}

PipelineStrategy::PipelineStrategy(const PipelineOptions& options)
    : Strategy([&] {
        const StrategyPreset preset = pipeline_preset("pipeline", options);
        StrategyPlan plan = pipeline_plan(preset, options);
        take_stages(plan, preset, options);
        return std::make_shared<StrategyCore>(std::move(plan));
      }()) {}

}  // namespace cohort
