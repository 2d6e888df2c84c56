// The workers of a MultiWorkerMeshStrategy as threads, on loopback.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cohort/cluster/multi_worker_mesh.h"
#include "tests/equivalence/mesh_runs.h"
#include "tests/support/workers.h"

namespace cohort::equivalence {

// Returns the devices of so many workers, each with as many CPUs.
inline std::vector<std::string> devices_of_workers(int workers, int devices) {
  std::vector<std::string> all;
  for (int task = 0; task < workers; ++task) {
    for (const std::string& cpu : cpu_devices(devices)) all.push_back(c10::str("/job:worker/task:", task, cpu));
  }
  return all;
}

using OfWorker = std::function<void(const MultiWorkerMeshStrategy& strategy)>;

// Runs fn as each worker, which has the options options_of(rank), and rethrows the first failure in rank order.
inline void with_mesh_of_workers(int workers, const DeviceMesh& mesh,
                                 const std::function<MeshOptions(int rank)>& options_of, const OfWorker& fn) {
  testing::in_cluster(workers, [&](int rank, const ClusterOptions& cluster) {
    fn(MultiWorkerMeshStrategy(mesh, options_of(rank), cluster));
  });
}

}  // namespace cohort::equivalence

namespace cohort::equivalence::mesh_runs {

struct Workers {
  int workers = 2;
  int devices = 1;  // of each
  int batch = 1;
  int model = 2;
};

inline DeviceMesh mesh_of(const Workers& shape) {
  return DeviceMesh({shape.batch, shape.model}, {"batch", "model"}, devices_of_workers(shape.workers, shape.devices));
}

// Runs fn as each worker, whose replicas share the states of the parts that they have.
inline void with_sharded_mesh(const Workers& shape, const LayoutMap& layout, int stage, const OfWorker& fn) {
  with_mesh_of_workers(
      shape.workers, mesh_of(shape),
      [&](int /*rank*/) {
        return MeshOptions{.layout = layout, .exchange = {.threads_per_replica = 1}, .sharding = shared_states(stage)};
      },
      fn);
}

// Runs fn as each worker, which has the layout layout_of(rank), and rethrows the first failure in rank order.
inline void with_mesh(const Workers& shape, const std::function<LayoutMap(int rank)>& layout_of, const OfWorker& fn) {
  with_mesh_of_workers(
      shape.workers, mesh_of(shape),
      [&](int rank) { return MeshOptions{.layout = layout_of(rank), .exchange = {.threads_per_replica = 1}}; }, fn);
}

inline void with_mesh(const Workers& shape, const LayoutMap& layout, const OfWorker& fn) {
  with_mesh(
      shape, [&](int /*rank*/) { return layout; }, fn);
}

}  // namespace cohort::equivalence::mesh_runs
