// The arithmetic of positions. A replica's number is its coordinate read as digits whose bases are the sizes of the
// axes, so a line along an axis is an arithmetic progression: its step is the product of the sizes that follow.
#include "cohort/topology.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>

#include "base/fail.h"

namespace cohort {

namespace {

void require_axes(const std::vector<Axis>& axes) {
  if (axes.empty()) fail<InvalidArgument>("[topology] got no axes, wanted at least one");
  std::set<std::string> names;
  for (const Axis& axis : axes) {
    if (axis.name.empty()) fail<InvalidArgument>("[topology] an axis of size ", axis.size, " has no name");
    if (!names.insert(axis.name).second) fail<InvalidArgument>("[topology] two axes have the name \"", axis.name, "\"");
    if (axis.size < 1) {
      fail<InvalidArgument>("[topology] the axis \"", axis.name, "\" has the size ", axis.size, ", wanted 1 or more");
    }
  }
}

void require_places(const std::vector<Axis>& axes, const std::vector<Topology::Place>& places) {
  int64_t wanted = 1;
  for (const Axis& axis : axes) wanted *= axis.size;
  if (wanted != static_cast<int64_t>(places.size())) {
    fail<InvalidArgument>("[topology] got the places of ", places.size(), " replicas, the axes have ", wanted);
  }
  int last = 0;
  for (std::size_t replica = 0; replica < places.size(); ++replica) {
    const int process = places[replica].process;
    const bool follows = process == last || (replica > 0 && process == last + 1);
    if (!follows) {
      fail<InvalidArgument>("[topology] replica ", replica, " is in process ", process, ", wanted ", last,
                            replica > 0 ? " or the next one: a process has replicas that follow each other" : "");
    }
    last = process;
  }
}

std::size_t index_of(const std::vector<Axis>& axes, std::string_view axis) {
  const auto found = std::find_if(axes.begin(), axes.end(), [&](const Axis& each) { return each.name == axis; });
  if (found != axes.end()) return static_cast<std::size_t>(found - axes.begin());
  std::vector<std::string> names;
  for (const Axis& each : axes) names.push_back(each.name);
  fail<NotFound>("[topology] there is no axis \"", axis, "\", only ", c10::Join(", ", names));
}

// Returns the replicas that agree with this one on all axes for which `free` does not hold.
template <typename Free>
std::vector<int> replicas_along(const Topology& topology, int replica, const Free& free) {
  const Coordinate own = topology.coordinate(replica);
  std::vector<int> replicas;
  for (int other = 0; other < topology.size(); ++other) {
    const Coordinate theirs = topology.coordinate(other);
    bool agrees = true;
    for (std::size_t a = 0; a < own.size(); ++a) agrees = agrees && (free(a) || own[a] == theirs[a]);
    if (agrees) replicas.push_back(other);
  }
  return replicas;
}

}  // namespace

Topology::Topology() : axes_{Axis{.name = "batch"}}, places_{Place{.device = DeviceSpec().canonical()}} {}

Topology::Topology(std::vector<Axis> axes, std::vector<Place> places)
    : axes_(std::move(axes)), places_(std::move(places)) {
  require_axes(axes_);
  require_places(axes_, places_);
}

Topology Topology::batch(const std::vector<std::vector<DeviceSpec>>& devices_of_processes) {
  std::vector<Place> places;
  for (std::size_t process = 0; process < devices_of_processes.size(); ++process) {
    for (const DeviceSpec& device : devices_of_processes[process]) {
      places.push_back({.process = static_cast<int>(process), .device = device});
    }
  }
  const auto size = static_cast<int>(places.size());
  return {{Axis{.name = "batch", .size = size}}, std::move(places)};
}

const Axis& Topology::axis(std::string_view name) const {
  return axes_[index_of(axes_, name)];
}

int Topology::num_replicas_in_sync() const {
  int product = 1;
  for (const Axis& axis : axes_) product *= axis.role == AxisRole::kBatch ? axis.size : 1;
  return product;
}

const Topology::Place& Topology::place(int replica) const {
  if (replica < 0 || replica >= size()) {
    fail<InvalidArgument>("[topology] there is no replica ", replica, ", only 0 to ", size() - 1);
  }
  return places_[static_cast<std::size_t>(replica)];
}

std::vector<int> Topology::replicas_of(int process) const {
  std::vector<int> replicas;
  for (int replica = 0; replica < size(); ++replica) {
    if (place(replica).process == process) replicas.push_back(replica);
  }
  return replicas;
}

Coordinate Topology::coordinate(int replica) const {
  (void)place(replica);
  Coordinate coordinate(axes_.size());
  for (std::size_t a = axes_.size(); a-- > 0;) {
    coordinate[a] = replica % axes_[a].size;
    replica /= axes_[a].size;
  }
  return coordinate;
}

int Topology::replica_at(const Coordinate& coordinate) const {
  if (coordinate.size() != axes_.size()) {
    fail<InvalidArgument>("[topology] a coordinate of ", coordinate.size(), " indices came, there are ", axes_.size(),
                          " axes");
  }
  int replica = 0;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    const Axis& axis = axes_[a];
    if (coordinate[a] < 0 || coordinate[a] >= axis.size) {
      fail<InvalidArgument>("[topology] index ", coordinate[a], " on the axis \"", axis.name, "\", which has ",
                            axis.size, " replicas");
    }
    replica = replica * axis.size + coordinate[a];
  }
  return replica;
}

std::vector<int> Topology::line(std::string_view axis, int replica) const {
  const std::size_t along = index_of(axes_, axis);
  return replicas_along(*this, replica, [&](std::size_t a) { return a == along; });
}

int Topology::line_number(std::string_view axis, int replica) const {
  const std::size_t along = index_of(axes_, axis);
  const Coordinate position = coordinate(replica);
  int number = 0;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (a != along) number = number * axes_[a].size + position[a];
  }
  return number;
}

std::vector<int> Topology::replicas_in_sync(int replica) const {
  return replicas_along(*this, replica, [&](std::size_t a) { return axes_[a].role == AxisRole::kBatch; });
}

int Topology::share_of(int replica) const {
  const Coordinate position = coordinate(replica);
  int share = 0;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (axes_[a].role == AxisRole::kBatch) share = share * axes_[a].size + position[a];
  }
  return share;
}

std::string Topology::to_string() const {
  std::vector<std::string> axes;
  for (const Axis& axis : axes_) axes.push_back(c10::str(axis.name, " ", axis.size));
  return c10::str(c10::Join(", ", axes), "; ", size(), size() == 1 ? " replica in " : " replicas in ", num_processes(),
                  num_processes() == 1 ? " process" : " processes");
}

}  // namespace cohort
