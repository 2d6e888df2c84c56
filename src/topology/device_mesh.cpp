// A mesh is a topology whose axes are sorted by what they communicate, and a table of which axis of the user's each of
// them is. Devices are sorted by their tasks, so the replicas of a process follow each other.
#include "cohort/device_mesh.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "base/fail.h"

namespace cohort {

namespace {

struct NamedRole {
  const char* name;
  AxisRole role;
};
constexpr NamedRole kRoles[] = {
    {"batch", AxisRole::kBatch},    {"data", AxisRole::kBatch},     {"replica", AxisRole::kBatch},
    {"shard", AxisRole::kBatch},    {"model", AxisRole::kModel},    {"tensor", AxisRole::kModel},
    {"space", AxisRole::kSpace},    {"sequence", AxisRole::kSpace}, {"stage", AxisRole::kStage},
    {"pipeline", AxisRole::kStage},
};

// Returns how little an axis communicates: a stage sends activations to one neighbour, the batch adds up gradients once
// a step, space and model exchange in every layer.
int lightness(AxisRole role) {
  switch (role) {
    case AxisRole::kStage:
      return 3;
    case AxisRole::kBatch:
      return 2;
    case AxisRole::kSpace:
      return 1;
    case AxisRole::kModel:
      return 0;
  }
  return 0;
}

AxisRole role_of(const std::string& name) {
  std::vector<std::string> known;
  for (const NamedRole& each : kRoles) {
    if (name == each.name) return each.role;
    known.emplace_back(each.name);
  }
  fail<InvalidArgument>("[mesh] the name of the axis \"", name, "\" does not say what it divides, only ",
                        c10::Join(", ", known), " do; DeviceMeshOptions::roles says it for other names");
}

std::vector<Axis> make_axes(const std::vector<int>& sizes, const std::vector<std::string>& names,
                            const std::vector<AxisRole>& roles) {
  if (sizes.empty() || sizes.size() != names.size()) {
    fail<InvalidArgument>("[mesh] got ", sizes.size(), " sizes and ", names.size(),
                          " names of axes, wanted one of each for every axis, and at least one axis");
  }
  if (!roles.empty() && roles.size() != names.size()) {
    fail<InvalidArgument>("[mesh] got ", roles.size(), " roles for the ", names.size(), " axes ",
                          c10::Join(", ", names), ", wanted one for each, or none");
  }
  std::vector<Axis> axes;
  std::set<std::string> seen;
  for (std::size_t a = 0; a < names.size(); ++a) {
    if (names[a].empty()) fail<InvalidArgument>("[mesh] axis ", a, " has an empty name");
    if (!seen.insert(names[a]).second) {
      fail<InvalidArgument>("[mesh] two axes have the name \"", names[a], "\", wanted a name for each");
    }
    if (sizes[a] < 1 && sizes[a] != -1) {
      fail<InvalidArgument>("[mesh] the axis \"", names[a], "\" has the size ", sizes[a],
                            ", wanted 1 or more, or -1 for what the devices leave");
    }
    axes.push_back({.name = names[a], .size = sizes[a], .role = roles.empty() ? role_of(names[a]) : roles[a]});
  }
  return axes;
}

std::string text_of(const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis& axis : axes) text += c10::str(text.empty() ? "" : " x ", axis.name, " ", axis.size);
  return text;
}

// Returns the product of the sizes of all axes but one.
int64_t product_without(const std::vector<Axis>& axes, std::size_t left_out) {
  int64_t product = 1;
  for (std::size_t a = 0; a < axes.size(); ++a) product *= a == left_out ? 1 : axes[a].size;
  return product;
}

// Says which sizes of single axes would fill so many devices.
std::string what_fits(const std::vector<Axis>& axes, int64_t devices) {
  std::vector<std::string> fits;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const int64_t others = product_without(axes, a);
    if (devices > 0 && devices % others == 0) fits.push_back(c10::str(axes[a].name, " ", devices / others));
  }
  if (!fits.empty()) return c10::str("; ", c10::Join(" or ", fits), " would fit, with the other sizes as they are");
  return c10::str("; no size of a single axis would fit: wanted sizes whose product is ", devices);
}

// Gives the axis of size -1, if there is one, what the devices leave.
void fill_open_axis(std::vector<Axis>& axes, int64_t devices) {
  const auto is_open = [](const Axis& axis) { return axis.size == -1; };
  const auto open = std::find_if(axes.begin(), axes.end(), is_open);
  if (open == axes.end()) return;
  if (const auto other = std::find_if(open + 1, axes.end(), is_open); other != axes.end()) {
    fail<InvalidArgument>("[mesh] the axes \"", open->name, "\" and \"", other->name,
                          "\" both have the size -1, which one axis may have");
  }
  const int64_t others = product_without(axes, static_cast<std::size_t>(open - axes.begin()));
  if (devices % others != 0 || devices == 0) {
    fail<InvalidArgument>("[mesh] the axis \"", open->name, "\" is to have what ", devices,
                          " devices leave, but the other axes (", text_of(axes), ") take ", others,
                          " at a time, which does not divide them");
  }
  open->size = static_cast<int>(devices / others);
}

int64_t product_of(const std::vector<Axis>& axes) {
  return product_without(axes, axes.size());
}

std::vector<DeviceSpec> specs_of(const std::vector<Axis>& axes, const std::vector<std::string>& names) {
  std::vector<DeviceSpec> specs;
  for (const std::string& name : names) specs.push_back(DeviceSpec::parse(name).canonical());
  if (!specs.empty()) return specs;
  for (const LogicalDevice& gpu : list_logical_devices("GPU")) specs.push_back(gpu.spec);
  if (!specs.empty()) return specs;
  for (const Axis& axis : axes) {
    if (axis.size != -1) continue;
    fail<InvalidArgument>("[mesh] the axis \"", axis.name,
                          "\" has the size -1, but no devices came and no GPU is visible; wanted its size or devices");
  }
  for (const std::string& name : cpu_devices(static_cast<int>(product_of(axes)))) {
    specs.push_back(find_logical_device(name).spec);
  }
  return specs;
}

// The order of the tasks of a cluster: the chief, then the workers.
auto task_of(const DeviceSpec& device) {
  return std::tuple(device.job != "chief", device.job, device.task);
}

// Returns every position, in the order of the axes.
std::vector<Coordinate> positions(const std::vector<Axis>& axes) {
  std::vector<Coordinate> all{Coordinate()};
  for (const Axis& axis : axes) {
    std::vector<Coordinate> longer;
    for (const Coordinate& begin : all) {
      for (int i = 0; i < axis.size; ++i) {
        longer.push_back(begin);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

}  // namespace

DeviceMesh::DeviceMesh(std::vector<int> sizes, const std::vector<std::string>& names,
                       const std::vector<std::string>& devices, const DeviceMeshOptions& options)
    : DeviceMesh([&] {
        std::vector<Axis> axes = make_axes(sizes, names, options.roles);
        const std::vector<DeviceSpec> specs = specs_of(axes, devices);
        fill_open_axis(axes, static_cast<int64_t>(specs.size()));
        return DeviceMesh(std::move(axes), specs);
      }()) {}

DeviceMesh::DeviceMesh(std::vector<Axis> axes, const std::vector<DeviceSpec>& devices) : axes_(std::move(axes)) {
  const auto count = static_cast<int64_t>(devices.size());
  if (product_of(axes_) != count) {
    fail<InvalidArgument>("[mesh] the axes ", text_of(axes_), " have ", product_of(axes_), " places, but ", count,
                          " devices came", what_fits(axes_, count));
  }
  std::vector<DeviceSpec> sorted = devices;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const DeviceSpec& a, const DeviceSpec& b) { return task_of(a) < task_of(b); });
  std::vector<Topology::Place> places;
  std::set<std::string> seen;
  for (const DeviceSpec& device : sorted) {
    if (!seen.insert(device.to_string()).second)
      fail<InvalidArgument>("[mesh] ", device.to_string(), " is there twice");
    int process = places.empty() ? 0 : places.back().process;
    if (!places.empty() && task_of(places.back().device) != task_of(device)) ++process;
    places.push_back({.process = process, .device = device});
  }
  std::vector<std::size_t> order(axes_.size());  // the axes, the lightest one first
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lightness(axes_[a].role) > lightness(axes_[b].role); });
  std::vector<Axis> by_weight;
  place_.resize(axes_.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    by_weight.push_back(axes_[order[i]]);
    place_[order[i]] = i;
  }
  topology_ = Topology(std::move(by_weight), std::move(places));
}

int DeviceMesh::replica_at(const Coordinate& coordinate) const {
  if (coordinate.size() != axes_.size()) {
    fail<InvalidArgument>("[mesh] a position of ", coordinate.size(), " indices came, the mesh is ", to_string());
  }
  Coordinate position(coordinate.size());
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (coordinate[a] < 0 || coordinate[a] >= axes_[a].size) {
      fail<InvalidArgument>("[mesh] index ", coordinate[a], " on the axis \"", axes_[a].name, "\", wanted 0 to ",
                            axes_[a].size - 1);
    }
    position[place_[a]] = coordinate[a];
  }
  return topology_.replica_at(position);
}

std::vector<DeviceSpec> DeviceMesh::devices() const {
  std::vector<DeviceSpec> list;
  for (const Coordinate& each : positions(axes_)) list.push_back(device(each));
  return list;
}

const DeviceSpec& DeviceMesh::device(const Coordinate& coordinate) const {
  return topology_.place(replica_at(coordinate)).device;
}

Coordinate DeviceMesh::coordinate(const DeviceSpec& device) const {
  const DeviceSpec wanted = device.canonical();
  for (const Coordinate& each : positions(axes_)) {
    if (this->device(each) == wanted) return each;
  }
  fail<NotFound>("[mesh] ", wanted.to_string(), " is not in the mesh ", to_string());
}

std::vector<std::vector<DeviceSpec>> DeviceMesh::groups(std::string_view axis) const {
  std::vector<std::vector<DeviceSpec>> groups;
  for (const Coordinate& each : positions(axes_)) {
    const std::vector<int> line = topology_.line(axis, replica_at(each));
    if (line.front() != replica_at(each)) continue;
    std::vector<DeviceSpec>& group = groups.emplace_back();
    for (const int replica : line) group.push_back(topology_.place(replica).device);
  }
  return groups;
}

bool DeviceMesh::crosses_tasks(std::string_view axis) const {
  for (const std::vector<DeviceSpec>& group : groups(axis)) {
    for (const DeviceSpec& device : group) {
      if (task_of(device) != task_of(group.front())) return true;
    }
  }
  return false;
}

std::vector<DeviceSpec> DeviceMesh::devices_of(std::string_view job, int task) const {
  std::vector<DeviceSpec> list;
  for (int replica = 0; replica < size(); ++replica) {
    const DeviceSpec& device = topology_.place(replica).device;
    if (device.job == job && device.task == task) list.push_back(device);
  }
  return list;
}

DeviceMesh DeviceMesh::submesh(const std::vector<std::pair<std::string, int>>& at) const {
  std::vector<int> fixed(axes_.size(), -1);
  for (const auto& [name, index] : at) {
    const Axis& axis = topology_.axis(name);
    if (index < 0 || index >= axis.size) {
      fail<InvalidArgument>("[mesh] submesh: index ", index, " on the axis \"", name, "\", wanted 0 to ",
                            axis.size - 1);
    }
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      if (axes_[a].name == name) fixed[a] = index;
    }
  }
  std::vector<Axis> left;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (fixed[a] == -1) left.push_back(axes_[a]);
  }
  if (left.empty()) fail<InvalidArgument>("[mesh] submesh: every axis of ", to_string(), " is fixed, wanted one left");
  // The replicas of the part, in their order: the axes that are left keep theirs among each other.
  std::vector<DeviceSpec> devices;
  for (int replica = 0; replica < size(); ++replica) {
    const Coordinate position = topology_.coordinate(replica);
    bool inside = true;
    for (std::size_t a = 0; a < axes_.size(); ++a)
      inside = inside && (fixed[a] == -1 || position[place_[a]] == fixed[a]);
    if (inside) devices.push_back(topology_.place(replica).device);
  }
  return {std::move(left), devices};
}

std::string DeviceMesh::to_string() const {
  return text_of(axes_);
}

}  // namespace cohort
