#include "wings/pipeline/models/pipeline_flags.h"

#include <array>
#include <utility>

#include "base/fail.h"
#include "cohort/cluster/multi_worker_pipeline.h"
#include "models/command/sharding_flags.h"

namespace cohort {

namespace {

constexpr int64_t kMostMicrobatches = 1024;  // because each has a thread

struct ScheduleRow {
  const char* name;
  PipelineScheduleOptions (*make)(int microbatches);
};
template <typename Schedule>
PipelineScheduleOptions made(int microbatches) {
  return Schedule{.microbatches = microbatches};
}
constexpr std::array kSchedules = {
    ScheduleRow{"1f1b", made<Schedule1F1B>},
    ScheduleRow{"gpipe", made<ScheduleGPipe>},
    ScheduleRow{"interleaved", made<ScheduleInterleaved>},
    ScheduleRow{"zero_bubble_h1", made<ScheduleZeroBubbleH1>},
};

std::string schedule_names() {
  std::string names;
  for (const ScheduleRow& row : kSchedules) names += c10::str(names.empty() ? "" : ", ", row.name);
  return names;
}

}  // namespace

PipelineScheduleOptions schedule_of(const StrategyFlags& flags) {
  const int64_t microbatches = flags.pipeline_microbatches;
  if (microbatches < 1 || microbatches > kMostMicrobatches) {
    fail<InvalidArgument>("[train] --pipeline_microbatches is ", microbatches, ", wanted 1 to ", kMostMicrobatches);
  }
  for (const ScheduleRow& row : kSchedules) {
    if (flags.pipeline_schedule == row.name) return row.make(static_cast<int>(microbatches));
  }
  fail<InvalidArgument>("[train] --pipeline_schedule=", flags.pipeline_schedule, " is not known; there are ",
                        schedule_names());
}

namespace {

// Returns the size of the axis that divides layers.
int stages_of(const StrategyFlags& flags, const DeviceMesh& mesh) {
  const Axis* stages = nullptr;
  for (const Axis& axis : mesh.axes()) {
    if (axis.role != AxisRole::kStage) continue;
    if (stages != nullptr) {
      fail<InvalidArgument>("[train] --mesh=", flags.mesh, ": both ", stages->name, " and ", axis.name,
                            " divide layers, wanted one axis that does");
    }
    stages = &axis;
  }
  return stages == nullptr ? 1 : stages->size;
}

void refuse_stages(const StrategyFlags& flags) {
  const StrategyFlags defaults;
  using Flag = std::pair<bool, std::string>;
  for (const auto& [is_set, flag] :
       {Flag(*flags.pipeline_schedule != *defaults.pipeline_schedule, "pipeline_schedule=" + *flags.pipeline_schedule),
        Flag(*flags.pipeline_microbatches != *defaults.pipeline_microbatches,
             c10::str("pipeline_microbatches=", flags.pipeline_microbatches))}) {
    if (!is_set) continue;
    fail<InvalidArgument>("[train] --", flag, " has no meaning without an axis of stages in --mesh, such as stage=2");
  }
}

void take_cut(StrategyFlags& flags, const Task& task, const DeviceMesh& mesh) {
  const int stages = stages_of(flags, mesh);
  const PipelineSchedule schedule =
      make_schedule(schedule_of(flags), stages, static_cast<int>(flags.pipeline_microbatches));
  flags.cut = task.pipeline_cut(schedule.num_chunks());
  flags.stages = stages;
}

PipelineOptions options_of(const StrategyFlags& flags, const DeviceMesh& mesh, const ExchangeOptions& exchange) {
  if (!flags.input_partition_dims.empty() || !flags.eval_input_partition_dims.empty()) {
    fail<InvalidArgument>("[train] task.train_input_partition_dims and task.eval_input_partition_dims have no meaning ",
                          "with --mesh=", flags.mesh, ", whose axis of stages divides the layers");
  }
  if (flags.sequence_parallel) {
    fail<InvalidArgument>("[train] --sequence_parallel=true has no meaning with --mesh=", flags.mesh,
                          ", whose stages have all positions between the products of their blocks");
  }
  return {.mesh = mesh,
          .layout = flags.layout,
          .schedule = schedule_of(flags),
          .cut = flags.cut,
          .exchange = exchange,
          .sharding = sharding_of(flags)};
}

Strategy make_pipeline(const StrategyFlags& flags, const DeviceMesh& mesh, const ExchangeOptions& exchange) {
  return PipelineStrategy(options_of(flags, mesh, exchange));
}

Strategy make_pipeline_of_workers(const StrategyFlags& flags, const DeviceMesh& mesh, const ExchangeOptions& exchange,
                                  const ClusterOptions& members) {
  return MultiWorkerPipelineStrategy(options_of(flags, mesh, exchange), members);
}

void check_pipeline(const StrategyFlags& flags, const StrategyRow& /*row*/) {
  if (flags.mesh->empty()) refuse_stages(flags);
}

void describe_pipeline(StrategyFlags& flags, ConfigFields& fields) {
  ConfigFields::Field& schedule = fields.add("pipeline_schedule", flags.pipeline_schedule,
                                             "the order in which the stages of a mesh with an axis of stages work");
  schedule.flag = "--pipeline_schedule";
  schedule.names = schedule_names();
  fields
      .add("pipeline_microbatches", flags.pipeline_microbatches,
           "the parts of a replica's share of a batch that are in the stages of such a mesh at the same time")
      .flag = "--pipeline_microbatches";
}

}  // namespace

FlagsOfWing pipeline_flags() {
  return {.place = FlagPlace::kLayout, .describe = describe_pipeline, .check = check_pipeline};
}

StageMaker make_stages() {
  return {.take_cut = take_cut,
          .make = make_pipeline,
          .make_of_workers = make_pipeline_of_workers,
          .refuse = refuse_stages};
}

}  // namespace cohort
