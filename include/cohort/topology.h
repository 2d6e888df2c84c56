// Topology: the replicas of all processes of a strategy, laid out on named axes.
//
//   const cohort::Topology& topology = strategy.topology();
//   topology.coordinate(5);            // {2, 1} on the axes "batch" (3) and "model" (2)
//   topology.line("model", 5);         // {4, 5}: the replicas that share the model of replica 5
//   topology.num_replicas_in_sync();   // 3: the product of the axes that carry the batch
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/device.h"

namespace cohort {

// The thing that the replicas along an axis divide among them.
enum class AxisRole {
  kBatch,  // the examples of a step: each replica takes a share of the global batch
  kModel,  // the model's parameters
  kSpace,  // the positions within an example
  kStage,  // the model's layers, one after the other
};

// One direction of a topology.
struct Axis {
  std::string name;                  // unique within the topology
  int size = 1;                      // the number of replicas along the axis, 1 or more
  AxisRole role = AxisRole::kBatch;  // the thing that these replicas divide among them

  bool operator==(const Axis&) const = default;
};

// A replica's position: one index for each axis, in the order of the axes.
using Coordinate = std::vector<int>;

// An immutable value that is the same in every process. Replicas are numbered from 0 in row-major order: the last axis
// changes fastest. A single replica has a topology, too: one axis of size 1.
class Topology {
 public:
  // The place of one replica.
  struct Place {
    int process = 0;    // the rank of the process that runs the replica
    DeviceSpec device;  // the device that the replica computes on

    bool operator==(const Place&) const = default;
  };

  // One replica on the CPU of this process.
  Topology();
  // `places` has one place for each replica. InvalidArgument: no axis, a name that is empty or used twice, a size below
  // 1, another number of places than the product of the sizes, or processes that are not numbered from 0 in the order
  // of their replicas.
  Topology(std::vector<Axis> axes, std::vector<Place> places);

  // Returns the topology of data parallelism: one axis "batch" over the devices of process 0, then those of process 1,
  // and so on.
  static Topology batch(const std::vector<std::vector<DeviceSpec>>& devices_of_processes);

  // Returns the axes, the slowest one first.
  const std::vector<Axis>& axes() const { return axes_; }
  // Returns the axis of that name. NotFound lists those that there are.
  const Axis& axis(std::string_view name) const;

  // Returns the number of replicas.
  int size() const { return static_cast<int>(places_.size()); }
  // Returns the number of replicas that share the global batch: the product of the axes that carry the batch.
  int num_replicas_in_sync() const;
  // Returns the number of processes.
  int num_processes() const { return places_.back().process + 1; }

  // Returns the place of a replica. InvalidArgument: there is no such replica.
  const Place& place(int replica) const;
  // Returns the replicas that a process runs, in ascending order.
  std::vector<int> replicas_of(int process) const;

  // Returns the position of a replica. InvalidArgument: there is no such replica.
  Coordinate coordinate(int replica) const;
  // Returns the replica at a position. InvalidArgument: the position lies outside.
  int replica_at(const Coordinate& coordinate) const;

  // Returns the replicas on the line along an axis that a replica lies on, in the order of the axis.
  std::vector<int> line(std::string_view axis, int replica) const;
  // Returns the number of the line along an axis that a replica lies on: lines are numbered from 0, in the order of
  // their first replicas.
  int line_number(std::string_view axis, int replica) const;
  // Returns the number of the share of the global batch that a replica takes, from 0: its position along the axes that
  // carry the batch. Replicas that differ in other axes only take the same share.
  int share_of(int replica) const;
  // Returns the replicas that hold the same part of the model as this one, itself included, and differ from it in the
  // axes that carry the batch only. Their gradients are added up.
  std::vector<int> replicas_in_sync(int replica) const;

  // Returns a text such as "batch 4, model 2; 8 replicas in 2 processes".
  std::string to_string() const;

  bool operator==(const Topology&) const = default;

 private:
  std::vector<Axis> axes_;
  std::vector<Place> places_;
};

}  // namespace cohort
