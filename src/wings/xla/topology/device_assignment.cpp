// The choice of cores for replicas, which follows tensorflow/python/tpu/device_assignment.py: the same arguments give
// the same cores in the same order.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/fail.h"
#include "cohort/cluster/tpu_topology.h"

namespace cohort {

namespace {

using Sizes = std::vector<int64_t>;
using Cores = std::vector<std::vector<TpuCoordinates>>;

std::string sizes_text(const Sizes& sizes) {
  return c10::str("[", c10::Join(",", sizes), "]");
}

int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// Returns the sizes, or 1 in each dimension if there are none.
Sizes checked(const char* name, const Sizes& sizes, const TpuTopology& topology) {
  if (sizes.empty()) return Sizes(topology.mesh_shape().size(), 1);
  if (sizes.size() == topology.mesh_shape().size() && *std::min_element(sizes.begin(), sizes.end()) >= 1) return sizes;
  fail<InvalidArgument>("[topology] ", name, " is ", sizes_text(sizes), ", wanted ", topology.mesh_rank(),
                        " sizes of 1 or more, for a mesh of ", sizes_text(topology.mesh_shape()));
}

// Returns how many replicas there are along each dimension: as near to a cube as can be. The dimension with the least
// room chooses first, of equal ones the cores of a chip, then x.
Sizes grid_of(const Sizes& room, int64_t num_replicas) {
  const std::size_t rank = room.size();
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < rank; ++i) order.push_back((i + rank - 1) % rank);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return room[a] < room[b]; });
  Sizes grid(rank, 1);
  int64_t remaining = num_replicas;
  for (std::size_t done = 0; done < rank; ++done) {
    const std::size_t dim = order[done];
    const double side = std::pow(static_cast<double>(remaining), 1.0 / static_cast<double>(rank - done));
    grid[dim] = std::min(static_cast<int64_t>(std::ceil(side)), room[dim]);
    remaining = (remaining + grid[dim] - 1) / grid[dim];
  }
  return grid;
}

// Returns the places of a plane in the order of a ring that goes through all but (0, 0), which would close it: along
// every second row and back along the next one, and home through the first column.
std::vector<std::pair<int64_t, int64_t>> open_ring(int64_t width, int64_t height) {
  std::vector<std::pair<int64_t, int64_t>> ring;
  for (int64_t row = 0; row < height / 2; ++row) {
    for (int64_t i = 1; i < width; ++i) ring.emplace_back(i, 2 * row);
    for (int64_t i = width - 1; i > 0; --i) ring.emplace_back(i, 2 * row + 1);
  }
  for (int64_t row = height - 1; row > 0; --row) ring.emplace_back(0, row);
  return ring;
}

// Returns all places of a block, row by row: x fastest.
Cores::value_type rows_of(int64_t x_size, int64_t y_size, int64_t z_size) {
  std::vector<TpuCoordinates> rows;
  for (int64_t z = 0; z < z_size; ++z) {
    for (int64_t y = 0; y < y_size; ++y) {
      for (int64_t x = 0; x < x_size; ++x) rows.push_back({x, y, z});
    }
  }
  return rows;
}

// Returns all places of a block in the order of a ring, or row by row where a side is odd.
std::vector<TpuCoordinates> ring_of(int64_t x_size, int64_t y_size, int64_t z_size) {
  const auto odd = [](int64_t size) { return size > 1 && size % 2 != 0; };
  const int flat = (x_size == 1 ? 1 : 0) + (y_size == 1 ? 1 : 0) + (z_size == 1 ? 1 : 0);
  if (flat >= 2 || odd(x_size) || odd(y_size) || odd(z_size)) return rows_of(x_size, y_size, z_size);
  std::vector<TpuCoordinates> ring{{0, 0, 0}};
  if (z_size == 1) {
    for (const auto& [x, y] : open_ring(x_size, y_size)) ring.push_back({x, y, 0});
  } else if (y_size == 1) {
    for (const auto& [x, z] : open_ring(x_size, z_size)) ring.push_back({x, 0, z});
  } else if (x_size == 1) {
    for (const auto& [y, z] : open_ring(y_size, z_size)) ring.push_back({0, y, z});
  } else {
    auto plane = open_ring(x_size, y_size);
    for (int64_t z = 0; z < z_size; ++z) {
      for (const auto& [x, y] : plane) ring.push_back({x, y, z});
      std::reverse(plane.begin(), plane.end());
    }
    for (int64_t z = z_size - 1; z > 0; --z) ring.push_back({0, 0, z});
  }
  return ring;
}

// Replicas of whole chips that take the whole mesh follow each other along a ring, and so do the chips of each.
Cores along_a_ring(const Sizes& shape, const Sizes& grid) {
  const std::vector<TpuCoordinates> inner = ring_of(shape[0], shape[1], shape[2]);
  Cores cores;
  for (const TpuCoordinates& block : ring_of(grid[0], grid[1], grid[2])) {
    std::vector<TpuCoordinates>& own = cores.emplace_back();
    for (const TpuCoordinates& chip : inner) {
      for (int64_t core = 0; core < shape[3]; ++core) {
        own.push_back(
            {block[0] * shape[0] + chip[0], block[1] * shape[1] + chip[1], block[2] * shape[2] + chip[2], core});
      }
    }
  }
  return cores;
}

// Returns where the first core of a replica is: of the grid's dimensions the last one, the cores of a chip, counts
// fastest, then x, y and z.
TpuCoordinates first_core_of(int64_t replica, const Sizes& grid, const Sizes& shape, const Sizes& stride) {
  const std::size_t rank = grid.size();
  TpuCoordinates first(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t dim = (i + rank - 1) % rank;
    const int64_t at = replica % grid[dim];
    replica /= grid[dim];
    first[dim] = at / stride[dim] * shape[dim] * stride[dim] + at % stride[dim];
  }
  return first;
}

Cores as_blocks(int num_replicas, const Sizes& grid, const Sizes& shape, const Sizes& stride) {
  Cores cores;
  for (int replica = 0; replica < num_replicas; ++replica) {
    const TpuCoordinates first = first_core_of(replica, grid, shape, stride);
    std::vector<TpuCoordinates>& own = cores.emplace_back();
    for (int64_t logical = 0; logical < product(shape); ++logical) {
      TpuCoordinates core = first;
      int64_t rest = logical;  // row-major in the shape
      for (std::size_t dim = shape.size(); dim-- > 0; rest /= shape[dim]) core[dim] += rest % shape[dim] * stride[dim];
      own.push_back(std::move(core));
    }
  }
  return cores;
}

Cores in_task_order(const TpuTopology& topology, int num_replicas, const Sizes& shape, const Sizes& stride) {
  const int64_t cores_each = product(shape);
  const int64_t per_task = topology.num_tpus_per_task();
  const int64_t all = topology.num_tasks() * per_task;
  if (product(stride) != 1) {
    fail<InvalidArgument>("[topology] computation_stride is ", sizes_text(stride), ", but the mesh lacks ",
                          topology.missing_devices().size(), " cores, so that it has to be 1 in each dimension");
  }
  if (num_replicas * cores_each > all) {
    fail<InvalidArgument>("[topology] num_replicas is ", num_replicas, ", but of ", all, " cores only ",
                          all / cores_each, " replicas of ", cores_each, " cores can be made");
  }
  Cores cores;
  for (int64_t i = 0; i < num_replicas * cores_each; ++i) {
    if (i % cores_each == 0) cores.emplace_back();
    cores.back().push_back(
        topology.device_coordinates()[static_cast<std::size_t>(i / per_task)][static_cast<std::size_t>(i % per_task)]);
  }
  return cores;
}

}  // namespace

DeviceAssignment DeviceAssignment::build(const TpuTopology& topology, const DeviceAssignmentOptions& options) {
  const Sizes& mesh = topology.mesh_shape();
  const Sizes shape = checked("computation_shape", options.computation_shape, topology);
  const Sizes stride = checked("computation_stride", options.computation_stride, topology);
  const int count = options.num_replicas;
  if (count < 1) fail<InvalidArgument>("[topology] num_replicas is ", count, ", wanted 1 or more");
  Sizes room;
  for (std::size_t i = 0; i < mesh.size(); ++i) {
    const int64_t footprint = shape[i] * stride[i];
    if (footprint > mesh[i]) {
      fail<InvalidArgument>("[topology] a replica of computation_shape ", sizes_text(shape), " and computation_stride ",
                            sizes_text(stride), " does not fit into a mesh of ", sizes_text(mesh));
    }
    room.push_back(mesh[i] / footprint * stride[i]);
  }
  if (count > product(room)) {
    fail<InvalidArgument>("[topology] num_replicas is ", count, ", but only ", product(room),
                          " replicas of computation_shape ", sizes_text(shape), " and computation_stride ",
                          sizes_text(stride), " fit into a mesh of ", sizes_text(mesh));
  }
  if (!topology.missing_devices().empty()) {
    return DeviceAssignment(topology, in_task_order(topology, count, shape, stride));
  }
  const Sizes grid = grid_of(room, count);
  const bool takes_all = count == product(room) && product(stride) == 1;
  if (mesh.size() == 4 && shape[3] == 2 && takes_all) return DeviceAssignment(topology, along_a_ring(shape, grid));
  return DeviceAssignment(topology, as_blocks(count, grid, shape, stride));
}

}  // namespace cohort
