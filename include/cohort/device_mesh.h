// DeviceMesh: devices of a process or of all tasks of a cluster on named axes, and what each axis divides.
//
//   const cohort::DeviceMesh mesh({2, 4}, {"replica", "batch"}, cohort::cpu_devices(8));
//   mesh.num_replicas_in_sync();                      // 8: both axes carry the batch
//   mesh.submesh({{"replica", 1}}).devices();         // the last four
//   cohort::MirroredStrategy strategy({.sharding = {.stage = 1, .axis = "batch"}, .mesh = mesh});
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/device.h"
#include "cohort/topology.h"

namespace cohort {

struct DeviceMeshOptions {
  // The thing that each axis divides, in the order of the axes. If the list is empty the names say it: batch, data,
  // replica and shard are kBatch, model and tensor kModel, space and sequence kSpace, stage and pipeline kStage.
  std::vector<AxisRole> roles = {};
};

// An immutable value; the same in every process that makes it of the same arguments. The axis that communicates most
// varies fastest over the devices of a task, so that it stays inside a machine where it fits: model before space
// before batch before stage, and among axes of one role the later ones. The order of the axes' names is the user's own.
class DeviceMesh {
 public:
  // `sizes` and `names`: one for each axis; one size may be -1, which is what the devices leave. `devices`: names such
  // as "/CPU:0", or "/job:worker/task:1/GPU:0" for those of a cluster, which are taken by task (chief, then workers),
  // and in a task in their order. If there are none, they are all visible GPUs, or without one as many logical CPUs as
  // the mesh has places. InvalidArgument names the axis and what would fit: sizes that the devices do not fill, a name
  // that is empty or used twice, a name without a role, a device that is there twice.
  DeviceMesh(std::vector<int> sizes, const std::vector<std::string>& names,
             const std::vector<std::string>& devices = {}, const DeviceMeshOptions& options = {});

  // Returns the axes in the order in which they were given.
  const std::vector<Axis>& axes() const { return axes_; }
  // Returns the number of devices.
  int size() const { return topology_.size(); }
  // Returns the number of replicas that share the global batch: the product of the axes that carry the batch.
  int num_replicas_in_sync() const { return topology_.num_replicas_in_sync(); }
  // Returns the replicas of the mesh, each on its device. Its axes are in the order of what they communicate, the
  // heaviest one last; its processes are the tasks.
  const Topology& topology() const { return topology_; }

  // Returns all devices, in the order of the axes (the last one changes fastest).
  std::vector<DeviceSpec> devices() const;
  // Returns the device at a position, which has one index for each axis. InvalidArgument: it lies outside.
  const DeviceSpec& device(const Coordinate& coordinate) const;
  // Returns the position of a device. NotFound: it is not in the mesh.
  Coordinate coordinate(const DeviceSpec& device) const;
  // Returns the devices of every line along an axis, in the order of its lines. NotFound: there is no such axis.
  std::vector<std::vector<DeviceSpec>> groups(std::string_view axis) const;
  // Returns whether a line along an axis has devices of several tasks. NotFound: there is no such axis.
  bool crosses_tasks(std::string_view axis) const;
  // Returns the devices of one task, in the order of their replicas.
  std::vector<DeviceSpec> devices_of(std::string_view job, int task) const;

  // Returns the mesh of the devices with these indices on the axes that are named, which it does not have any more.
  // NotFound: there is no such axis. InvalidArgument: an index outside, or no axis is left.
  DeviceMesh submesh(const std::vector<std::pair<std::string, int>>& at) const;

  // Returns a text such as "replica 2 x batch 4".
  std::string to_string() const;

  bool operator==(const DeviceMesh&) const = default;

 private:
  DeviceMesh(std::vector<Axis> axes, const std::vector<DeviceSpec>& devices);

  // Returns the replica at a position that has one index for each of axes().
  int replica_at(const Coordinate& coordinate) const;

  std::vector<Axis> axes_;
  std::vector<std::size_t> place_;  // the place of each of axes_ among those of topology_
  Topology topology_;
};

}  // namespace cohort
