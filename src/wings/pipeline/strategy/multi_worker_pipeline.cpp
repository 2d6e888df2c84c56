#include "cohort/cluster/multi_worker_pipeline.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "strategy/combinations.h"
#include "strategy/holders.h"
#include "strategy/strategies/devices.h"
#include "strategy/strategies/workers.h"
#include "wings/pipeline/strategy/pipeline_plan.h"

namespace cohort {

namespace {

constexpr const char* kPipelineName = "multi_worker_pipeline";

// Returns the stages that a process has of the lines that it takes part in.
std::set<int> stages_at(const Topology& mesh, std::size_t axis, int process) {
  std::set<int> stages;
  for (const int replica : mesh.replicas_of(process)) stages.insert(mesh.coordinate(replica)[axis]);
  return stages;
}

// Returns the topology whose replicas are runs of stages that one process has of a line, each on the device of its
// first stage.
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
  return {std::move(axes), std::move(places)};
}

// Says what the workers have to agree on beside their devices.
std::string text_of(const PipelineOptions& options, int stages) {
  const PipelineSchedule schedule = make_schedule(options.schedule, stages);
  return c10::str(schedule.name(), " of ", schedule.microbatches(), " microbatches and ", schedule.num_chunks(),
                  " chunks, cut at {", c10::Join(", ", options.cut), "}");
}

void require_options(const PipelineOptions& options, const ClusterOptions& members) {
  if (!options.mesh) {
    fail<InvalidArgument>("[strategy] ", kPipelineName, ": PipelineOptions::mesh is not set, whose devices say which ",
                          "worker has which stages");
  }
  require_one_of(kPipelineName, options.devices, options.mesh);
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
  if (members.communication.overlap.value_or(false) || members.communication.bytes_per_pack != 0) {
    fail<InvalidArgument>(
        "[strategy] ", kPipelineName, ": communication.overlap and communication.bytes_per_pack have ",
        "no meaning, because gradients leave after the last backward pass, in the messages of ", "exchange");
  }
  require_known(members.communication);
}

// Checks that the replicas of the workers, which have told of their devices, are those of the topology.
void require_workers(const Topology& workers, const Topology& wanted, const DeviceMesh& mesh) {
  for (int r = 0; r < std::max(workers.size(), wanted.size()); ++r) {
    const bool both = r < workers.size() && r < wanted.size();
    if (both && workers.place(r) == wanted.place(r)) continue;
    const Topology& longer = r < workers.size() ? workers : wanted;
    fail<InvalidArgument>("[strategy] ", kPipelineName, ": the mesh (", mesh.to_string(), ") and the workers (",
                          workers.to_string(), ") differ from ", longer.place(r).device.to_string(), " on");
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

// Checks that a process alone has all devices.
void require_own(const Topology& topology, const DeviceMesh& mesh) {
  for (int r = 0; r < topology.size(); ++r) {
    if (topology.place(r).process == 0) continue;
    fail<InvalidArgument>("[strategy] ", kPipelineName, ": ", topology.place(r).device.to_string(), " of the mesh (",
                          mesh.to_string(), ") belongs to another task, and there is no cluster with it");
  }
}

StrategyPlan plan_of(const PipelineOptions& options, const ClusterOptions& members) {
  require_options(options, members);
  const DeviceMesh& mesh = *options.mesh;
  const int stages = stages_of(mesh).size;
  const ClusterResolverPtr resolver = members.resolver ? members.resolver : resolve_cluster();
  const std::optional<TaskId> task = resolver->task();
  const ClusterSpec cluster = training_cluster(kPipelineName, resolver->cluster_spec(), task);
  const std::vector<LogicalDevice> chosen = choose_devices(kPipelineName, devices_in(kPipelineName, mesh, task));
  const Topology topology = runs_of_stages(mesh);
  const auto leaders = static_cast<std::ptrdiff_t>(topology.replicas_of(0).size());
  const bool has_one_stage = chosen.size() == static_cast<std::size_t>(leaders);
  require_lines_here(chosen, has_one_stage ? 1 : chosen.size());
  require_one_kind(mesh);
  StrategyPlan plan = local_plan(kPipelineName, {chosen.begin(), chosen.begin() + leaders});
  plan.exchange = options.exchange;
  take_layout(plan, options);
  plan.expects_workers = true;
  if (!cluster.empty()) {
    WorkerGroupOptions group{.cluster = cluster,
                             .task = *task,
                             .devices = plan.devices,
                             .resolver = std::string(resolver->name()),
                             .communication = members.communication,
                             .membership = members.membership,
                             .strategy = kPipelineName,
                             .alike = {{"mesh", agreed_text(mesh)},
                                       {"pipeline", text_of(options, stages)},
                                       {"layout", agreed_text(options.layout)},
                                       {"exchange", agreed_text(options.exchange)}}};
    group.communication.overlap = false;
    join_workers(plan, group);
    require_workers(plan.topology, topology, mesh);
  } else {
    log().info("[strategy] {}: one worker, with the devices of this process", kPipelineName);
    require_own(topology, mesh);
  }
  plan.topology = topology;
  PipelineSetup setup{.stages = stages};
  if (const Axis* axis = stage_axis(topology)) {
    setup.stages_here = stages / axis->size;
    setup.first_stage = stage_place_of(topology, plan.workers->rank()) * setup.stages_here;
    setup.axis = axis->name;
  }
  plan.devices_per_replica = setup.axis.empty() ? stages : setup.stages_here;
  take_schedule(plan, options, setup);
  return plan;
}

}  // namespace

// The processes of a line draw the same numbers.
MultiWorkerPipelineStrategy::MultiWorkerPipelineStrategy(const PipelineOptions& options, const ClusterOptions& cluster)
    : Strategy(std::make_shared<StrategyCore>(plan_of(options, cluster))) {
  take_seed_of_chief(*Access::core(*this));
}

int MultiWorkerPipelineStrategy::num_workers() const {
  return Access::core(*this)->num_workers();
}

int MultiWorkerPipelineStrategy::worker_rank() const {
  return Access::core(*this)->worker_rank();
}

std::shared_ptr<Membership> MultiWorkerPipelineStrategy::membership() const {
  return Access::core(*this)->workers().membership();
}

}  // namespace cohort
