// MultiWorkerMeshStrategy: tensor parallelism beside data parallelism on a mesh whose devices are those of the
// processes of a cluster.
//
//   cohort::MultiWorkerMeshStrategy strategy(
//       cohort::DeviceMesh({2, 2}, {"batch", "model"},
//                          {"/job:worker/task:0/GPU:0", "/job:worker/task:0/GPU:1",
//                           "/job:worker/task:1/GPU:0", "/job:worker/task:1/GPU:1"}),
//       {.layout = {{"hidden\\.weight", {"model", ""}}, {"output\\.weight", {"", "model"}}}});
//
// Every worker runs the same program, which is that of MeshStrategy. A line along an axis may have devices of several
// workers. What the chief's program gives a variable or a parameter counts, and checkpoints, which the chief writes,
// have whole tensors. Inputs in parts (MeshOptions::input_partition_dims) are divided among replicas of several workers
// alike. When a worker is lost, every call of the others that needs it throws Unavailable with its name.
#pragma once

#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/parallel/mesh_strategy.h"

namespace cohort {

// The strategy of a worker on a mesh.
class MultiWorkerMeshStrategy : public MultiWorkerStrategy {
 public:
  // Enters the cluster, as MultiWorkerMirroredStrategy does, with its errors. InvalidArgument, beside those of
  // MeshStrategy: the workers have other devices than the mesh, or differ in mesh, layout or exchange; some workers
  // take a part of the shares of the batch that another takes, which is so unless the devices of a worker are a
  // multiple or a divisor of those that share a model.
  explicit MultiWorkerMeshStrategy(const DeviceMesh& mesh, const MeshOptions& options = {},
                                   const ClusterOptions& cluster = {});
};

}  // namespace cohort
