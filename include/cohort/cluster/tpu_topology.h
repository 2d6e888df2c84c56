// TpuTopology and DeviceAssignment: where the chips of a TPU are, and which of their cores are which replica, as in
// tf.tpu.experimental. This is arithmetic: nothing of it needs a TPU.
//
//   const TpuTopology topology = tpu_initialize(resolver);
//   const auto assignment = DeviceAssignment::build(topology, {.num_replicas = 4});
//   TPUStrategy strategy(resolver, {.device_assignment = assignment});
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace cohort {

// Where a core is: x, y and z of its chip, then its number on the chip. A topology may have another rank, such as x, y
// and core.
using TpuCoordinates = std::vector<int64_t>;

// Immutable; a value.
class TpuTopology {
 public:
  // mesh_shape: the size of the mesh in each dimension, at least 1. devices: the coordinates of every core,
  // [task][ordinal], as many for each task. InvalidArgument: coordinates of another rank or outside of the mesh, two
  // cores in one place, no task, or tasks of different sizes.
  TpuTopology(std::vector<int64_t> mesh_shape, std::vector<std::vector<TpuCoordinates>> devices);

  // Returns the size of the mesh in each dimension.
  const std::vector<int64_t>& mesh_shape() const { return mesh_shape_; }
  // Returns the number of dimensions.
  int mesh_rank() const { return static_cast<int>(mesh_shape_.size()); }
  // Returns the number of processes that drive cores.
  int num_tasks() const { return static_cast<int>(devices_.size()); }
  // Returns the number of cores of each of them.
  int num_tpus_per_task() const { return static_cast<int>(devices_.front().size()); }
  // Returns the coordinates of all cores, [task][ordinal].
  const std::vector<std::vector<TpuCoordinates>>& device_coordinates() const { return devices_; }
  // Returns the places of the mesh in which there is no core.
  const std::vector<TpuCoordinates>& missing_devices() const { return missing_; }

  // Returns the task that drives the core at these coordinates. NotFound: there is none.
  int task_ordinal_at_coordinates(const TpuCoordinates& coordinates) const { return at(coordinates).first; }
  // Returns the core's number among those of its task. NotFound: there is none.
  int tpu_device_ordinal_at_coordinates(const TpuCoordinates& coordinates) const { return at(coordinates).second; }

 private:
  std::size_t place_of(const TpuCoordinates& coordinates) const;
  std::pair<int, int> at(const TpuCoordinates& coordinates) const;

  std::vector<int64_t> mesh_shape_;
  std::vector<std::vector<TpuCoordinates>> devices_;
  std::vector<std::pair<int, int>> owners_;  // (task, ordinal) for each place of the mesh; -1: there is no core
  std::vector<TpuCoordinates> missing_;
};

struct DeviceAssignmentOptions {
  // The cores of a replica in each dimension of the mesh. Empty: 1 in each.
  std::vector<int64_t> computation_shape = {};
  // The distance of a replica's cores in each dimension. Empty: 1 in each.
  std::vector<int64_t> computation_stride = {};
  // The number of replicas.
  int num_replicas = 1;
};

// Which core is which logical core of which replica. Immutable; a value.
class DeviceAssignment {
 public:
  // cores: the coordinates, [replica][logical core], as many for each replica. InvalidArgument: no replica, replicas of
  // different sizes, a core that stands twice. NotFound: a core that the topology has not.
  DeviceAssignment(TpuTopology topology, std::vector<std::vector<TpuCoordinates>> cores);

  // Chooses the cores of the replicas as TensorFlow does: replicas are blocks of computation_shape cores which lie near
  // each other, the cores of one chip first. If the replicas of whole chips take all of the mesh they follow each other
  // along a ring. In a mesh with missing cores they are taken in the order of the tasks. InvalidArgument: a shape or
  // stride of another rank or with sizes below 1, one that does not fit into the mesh, more replicas than fit, or a
  // stride in a mesh with missing cores.
  static DeviceAssignment build(const TpuTopology& topology, const DeviceAssignmentOptions& options = {});

  // Returns the topology whose cores these are.
  const TpuTopology& topology() const { return topology_; }
  // Returns the number of replicas.
  int num_replicas() const { return static_cast<int>(cores_.size()); }
  // Returns the number of cores of each replica.
  int num_cores_per_replica() const { return static_cast<int>(cores_.front().size()); }
  // Returns the coordinates of all cores, [replica][logical core].
  const std::vector<std::vector<TpuCoordinates>>& core_assignment() const { return cores_; }
  // Returns the coordinates of a replica's logical core. InvalidArgument: there is no such replica or core.
  const TpuCoordinates& coordinates(int replica, int logical_core = 0) const;
  // Returns the task that drives it. InvalidArgument as coordinates().
  int task_ordinal(int replica, int logical_core = 0) const;
  // Returns its number among the cores of its task. InvalidArgument as coordinates().
  int tpu_ordinal(int replica, int logical_core = 0) const;
  // Returns the replicas whose logical core of that number the task drives, in ascending order. InvalidArgument: there
  // is no such task or core.
  std::vector<int> lookup_replicas(int task, int logical_core = 0) const;

 private:
  TpuTopology topology_;
  std::vector<std::vector<TpuCoordinates>> cores_;
};

// Returns the shape of a block of so many cores, for DeviceAssignmentOptions::computation_shape: those of Model
// Garden's spatial partitioning where they fit (2: 1,1,1,2; 4: 1,2,1,2; 8: 2,2,1,2; 16: 4,2,1,2), else the block with
// the most cores of a chip and the shortest sides. InvalidArgument: no such block fits into the mesh.
std::vector<int64_t> computation_shape_of(const TpuTopology& topology, int num_cores);

}  // namespace cohort
