// MultiWorkerPipelineStrategy: a pipeline whose stages lie with the processes of a cluster, and data parallelism beside
// it.
//
//   cohort::MultiWorkerPipelineStrategy strategy(
//       {.mesh = cohort::DeviceMesh({2}, {"stage"}, {"/job:worker/task:0/CPU:0", "/job:worker/task:1/CPU:0"}),
//        .schedule = cohort::Schedule1F1B{.microbatches = 8}});
//
// Every worker runs the same program, which is that of PipelineStrategy, and reads the data of its replicas. A worker
// computes the chunks of the model of its own stages; activations and their gradients go from worker to worker. The
// function given to run() runs on all of them: in the chunks of others it goes on with tensors that have sizes and no
// values, and what reads a value there (Tensor::item(), masks as indices) is Unimplemented and names the operation.
//
// Before the first update a worker has all parameters. From then on it has those that its stages have used, with their
// gradients and slots; others are tensors without memory. state(), weights() and checkpoints, which all workers take
// part in, have all of them. When a worker is lost, every call of the others that needs it throws Unavailable with its
// name.
#pragma once

#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/parallel/pipeline_strategy.h"

namespace cohort {

// What run() returns is the same on all workers of a line of stages if it is a tensor, or made of tensors by vectors,
// pairs and tuples. Tensors in values of other types, which only a share of a single microbatch may return, have no
// values but on the last worker of the line.
class MultiWorkerPipelineStrategy : public MultiWorkerStrategy {
 public:
  // Enters the cluster, as MultiWorkerMirroredStrategy does, with its errors. `options` has a mesh, whose devices are
  // those of the workers. InvalidArgument, beside the errors of PipelineStrategy: there is no mesh; the workers have
  // other devices than the mesh, other numbers of stages each, or differ in mesh, schedule, cut or exchange.
  // Unimplemented: `sharding`, devices of several types.
  explicit MultiWorkerPipelineStrategy(const PipelineOptions& options, const ClusterOptions& cluster = {});
};

}  // namespace cohort
