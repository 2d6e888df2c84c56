#include "cohort/cluster/tpu_topology.h"

#include <c10/core/ScalarType.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>

#include "base/fail.h"

namespace cohort {

namespace {

std::string place_text(const std::vector<int64_t>& numbers) {
  return c10::str("[", c10::Join(",", numbers), "]");
}

// Returns all coordinates of a mesh, the last dimension fastest.
std::vector<TpuCoordinates> places_of(const std::vector<int64_t>& mesh) {
  std::vector<TpuCoordinates> places{{}};
  for (const int64_t size : mesh) {
    std::vector<TpuCoordinates> longer;
    for (const TpuCoordinates& place : places) {
      for (int64_t i = 0; i < size; ++i) {
        longer.push_back(place);
        longer.back().push_back(i);
      }
    }
    places = std::move(longer);
  }
  return places;
}

}  // namespace

TpuTopology::TpuTopology(std::vector<int64_t> mesh_shape, std::vector<std::vector<TpuCoordinates>> devices)
    : mesh_shape_(std::move(mesh_shape)), devices_(std::move(devices)) {
  if (mesh_shape_.empty() || *std::min_element(mesh_shape_.begin(), mesh_shape_.end()) < 1) {
    fail<InvalidArgument>("[topology] mesh_shape is ", place_text(mesh_shape_), ", wanted sizes of 1 or more");
  }
  if (devices_.empty() || devices_.front().empty()) fail<InvalidArgument>("[topology] a TPU topology got no cores");
  const std::vector<TpuCoordinates> places = places_of(mesh_shape_);
  owners_.assign(places.size(), {-1, -1});
  for (int task = 0; task < num_tasks(); ++task) {
    const auto& own = devices_[static_cast<std::size_t>(task)];
    if (own.size() != devices_.front().size()) {
      fail<InvalidArgument>("[topology] task ", task, " has ", own.size(), " cores and task 0 has ",
                            devices_.front().size(), ", wanted as many for each");
    }
    for (int ordinal = 0; ordinal < num_tpus_per_task(); ++ordinal) {
      const TpuCoordinates& core = own[static_cast<std::size_t>(ordinal)];
      const std::size_t place = place_of(core);
      if (place >= owners_.size()) {
        fail<InvalidArgument>("[topology] core ", ordinal, " of task ", task, " is at ", place_text(core),
                              ", wanted coordinates in a mesh of ", place_text(mesh_shape_));
      }
      if (owners_[place].first >= 0) fail<InvalidArgument>("[topology] two cores are at ", place_text(core));
      owners_[place] = {task, ordinal};
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (owners_[i].first < 0) missing_.push_back(places[i]);
  }
}

// Returns the number of the place, the last dimension fastest, or the number of places if it is not in the mesh.
std::size_t TpuTopology::place_of(const TpuCoordinates& coordinates) const {
  if (coordinates.size() != mesh_shape_.size()) return owners_.size();
  std::size_t place = 0;
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= mesh_shape_[i]) return owners_.size();
    place = place * static_cast<std::size_t>(mesh_shape_[i]) + static_cast<std::size_t>(coordinates[i]);
  }
  return place;
}

std::pair<int, int> TpuTopology::at(const TpuCoordinates& coordinates) const {
  const std::size_t place = place_of(coordinates);
  if (place < owners_.size() && owners_[place].first >= 0) return owners_[place];
  fail<NotFound>("[topology] there is no core at ", place_text(coordinates), " in a mesh of ", place_text(mesh_shape_));
}

DeviceAssignment::DeviceAssignment(TpuTopology topology, std::vector<std::vector<TpuCoordinates>> cores)
    : topology_(std::move(topology)), cores_(std::move(cores)) {
  if (cores_.empty() || cores_.front().empty()) fail<InvalidArgument>("[topology] a device assignment got no cores");
  std::set<TpuCoordinates> taken;
  for (std::size_t replica = 0; replica < cores_.size(); ++replica) {
    if (cores_[replica].size() != cores_.front().size()) {
      fail<InvalidArgument>("[topology] replica ", replica, " has ", cores_[replica].size(),
                            " cores and replica 0 has ", cores_.front().size(), ", wanted as many for each");
    }
    for (const TpuCoordinates& core : cores_[replica]) {
      (void)topology_.task_ordinal_at_coordinates(core);
      if (!taken.insert(core).second) {
        fail<InvalidArgument>("[topology] the core at ", place_text(core), " is assigned twice");
      }
    }
  }
}

const TpuCoordinates& DeviceAssignment::coordinates(int replica, int logical_core) const {
  if (replica < 0 || replica >= num_replicas() || logical_core < 0 || logical_core >= num_cores_per_replica()) {
    fail<InvalidArgument>("[topology] got the logical core ", logical_core, " of replica ", replica, ", there are ",
                          num_replicas(), " replicas of ", num_cores_per_replica(), " cores");
  }
  return cores_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(logical_core)];
}

int DeviceAssignment::task_ordinal(int replica, int logical_core) const {
  return topology_.task_ordinal_at_coordinates(coordinates(replica, logical_core));
}

int DeviceAssignment::tpu_ordinal(int replica, int logical_core) const {
  return topology_.tpu_device_ordinal_at_coordinates(coordinates(replica, logical_core));
}

std::vector<int> DeviceAssignment::lookup_replicas(int task, int logical_core) const {
  if (task < 0 || task >= topology_.num_tasks()) {
    fail<InvalidArgument>("[topology] got the task ", task, ", there are ", topology_.num_tasks());
  }
  std::vector<int> replicas;
  for (int replica = 0; replica < num_replicas(); ++replica) {
    if (task_ordinal(replica, logical_core) == task) replicas.push_back(replica);
  }
  return replicas;
}

}  // namespace cohort
