#include "cohort/cluster/multi_worker_pipeline.h"

#include <c10/util/StringUtil.h>

#include "base/fail.h"
#include "strategy/combinations.h"
#include "wings/pipeline/strategy/pipeline_plan.h"

namespace cohort {

namespace {

constexpr const char* kPipelineName = "multi_worker_pipeline";

// Says what the workers have to agree on beside their devices.
std::string text_of(const PipelineOptions& options, int stages) {
  const PipelineSchedule schedule = make_schedule(options.schedule, stages);
  return c10::str(schedule.name(), " of ", schedule.microbatches(), " microbatches and ", schedule.num_chunks(),
                  " chunks, cut at {", c10::Join(", ", options.cut), "}");
}

void require_options(const PipelineOptions& options) {
  if (!options.mesh) {
    fail<InvalidArgument>("[strategy] ", kPipelineName, ": PipelineOptions::mesh is not set, whose devices say which ",
                          "worker has which stages");
  }
  for (const Axis& axis : options.mesh->axes()) {
    if (axis.role != AxisRole::kModel || !options.mesh->crosses_tasks(axis.name)) continue;
    require_pair(c10::str("[strategy] ", kPipelineName, ":"),
                 {.feature = kModelOfWorkers, .said = c10::str("the axis \"", axis.name, "\" goes between workers")},
                 {.feature = kStagesOfWorkers, .said = "the mesh is " + options.mesh->to_string()});
  }
  if (options.sharding.stage > 0) {
    require_pair(c10::str("[strategy] ", kPipelineName, ":"),
                 {.feature = kStagesOfWorkers, .said = "the mesh is " + options.mesh->to_string()},
                 {.feature = kSharedSlots, .said = c10::str("sharding.stage is ", options.sharding.stage)});
  }
}

// Checks that the stages exchange values between devices of one type.
void require_one_kind(const DeviceMesh& mesh) {
  const std::vector<DeviceSpec> devices = mesh.devices();
  for (const DeviceSpec& device : devices) {
    if (device.type == devices.front().type) continue;
    fail<Unimplemented>("[strategy] ", kPipelineName, ": the mesh (", mesh.to_string(), ") has both ",
                        devices.front().to_string(), " and ", device.to_string(), ", wanted devices of one type");
  }
}

JoinedCore joined(const PipelineOptions& options, const ClusterOptions& cluster) {
  require_options(options);
  require_one_kind(*options.mesh);
  StrategyPreset preset = pipeline_preset(kPipelineName, options);
  preset.cluster = resolved(cluster);
  leave_after_backward(preset.name, *preset.cluster);
  preset.alike = {{"pipeline", text_of(options, stages_of(*options.mesh).size)},
                  {"layout", agreed_text(options.layout)},
                  {"exchange", agreed_text(options.exchange)}};
  StrategyPlan plan = pipeline_plan(preset, options);
  enter_cluster(plan, preset);
  take_stages(plan, preset, options);
  return joined_core(std::move(plan), preset);
}

}  // namespace

MultiWorkerPipelineStrategy::MultiWorkerPipelineStrategy(const PipelineOptions& options, const ClusterOptions& cluster)
    : MultiWorkerStrategy(joined(options, cluster)) {}

}  // namespace cohort
