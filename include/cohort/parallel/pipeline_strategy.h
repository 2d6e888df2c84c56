// PipelineStrategy: the layers of a model divided among devices, which work on different microbatches at a time.
//
//   cohort::PipelineStrategy strategy({.devices = cohort::cpu_devices(2),
//                                      .schedule = cohort::Schedule1F1B{.microbatches = 8}});
//
// The program is that of any other strategy: model.fit(), or run() with a function that calls the model and minimizes
// a loss. A replica is a line of stages: its function is called once for each microbatch of its share, stops where a
// stage of the model ends, and goes on when the schedule has the next stage do so. What the calls return is put
// together, and the parameters are updated once, when all microbatches are through.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/device_mesh.h"
#include "cohort/parallel/axes.h"
#include "cohort/parallel/pipeline_schedule.h"
#include "cohort/parallel/stages.h"
#include "cohort/strategy.h"

namespace cohort {

struct PipelineOptions {
  // The devices of the stages, in their order. NotFound: it does not exist. InvalidArgument: one is there twice.
  // Unimplemented: stages of a line on different GPUs, which MultiWorkerPipelineStrategy has, or a device of XLA.
  std::vector<std::string> devices = {};
  // Devices on an axis of stages (the role kStage) and axes that carry the batch or divide parameters, instead of
  // `devices`. InvalidArgument: both came, or there is not exactly one axis of stages. Unimplemented: an axis of
  // another role; in MultiWorkerPipelineStrategy an axis that divides parameters between workers.
  std::optional<DeviceMesh> mesh = std::nullopt;
  // The parameters that are cut along axes of the mesh that divide them, as in MeshOptions::layout. InvalidArgument:
  // one of layout and axis came without the other; in mirror(): a pattern matches no parameter.
  LayoutMap layout = {};
  // The order in which stages work. A share with fewer examples than microbatches has as many as examples.
  PipelineScheduleOptions schedule = Schedule1F1B{};
  // The layers of a Sequential with which chunks begin, or the names of stage_place(). If it is empty a Sequential is
  // cut at its Stage() layers, or if it has none by the time that its layers take (beside a layout by the number of
  // their parameters), and other modules where they call next_stage(). InvalidArgument names the chunks that the
  // schedule has and the layers that there are.
  std::vector<std::string> cut = {};
  // The most microbatches whose activations a stage may keep; 0: any number. InvalidArgument names the stage of the
  // schedule that would keep more.
  int most_alive = 0;
  // Options of the exchange of gradients along the axes that carry the batch. threads_per_replica is for each stage.
  ExchangeOptions exchange = {};
  // The states that replicas share along an axis that carries the batch. Unimplemented: a stage above 1.
  ShardingOptions sharding = {};
};

// Pipeline parallelism in one process, with a thread for each stage, and data parallelism beside it.
// num_replicas_in_sync() is the product of the axes that carry the batch, 1 without them; a PerReplica has a value for
// each, and a replica's device is that of its first stage.
//
// Functions given to run() get one microbatch of their replica's share at a time, in parts of the PerReplica<Example>
// among the arguments; everything else comes whole. Different microbatches are in the model at the same time: what a
// function does before its first stage ends and after its last one begins may overlap. Returned tensors without
// dimensions and numbers are added up, tensors with a row for each example are joined, vectors, pairs and tuples by
// their elements; other types are an InvalidArgument. Random numbers (Replica::generator()) are each microbatch's own,
// whatever the cut and the schedule. Sums over the batch (all_reduce, masks of losses, SyncBatchNormalization),
// gradients() and apply_gradients() are Unimplemented there. The first step of an optimizer fails with
// FailedPrecondition if several chunks of the model change a tensor of it, such as the statistics of a batch norm.
class PipelineStrategy : public Strategy {
 public:
  explicit PipelineStrategy(const PipelineOptions& options);
};

}  // namespace cohort
