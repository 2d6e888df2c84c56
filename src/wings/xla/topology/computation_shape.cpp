#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>

#include "base/fail.h"
#include "cohort/cluster/tpu_topology.h"

namespace cohort {

namespace {

using Shape = std::vector<int64_t>;

struct KnownShape {
  int num_cores;
  std::array<int64_t, 4> shape;
};

// The shapes of Model Garden's spatial partitioning, for chips of two cores.
constexpr KnownShape kKnown[] = {{2, {1, 1, 1, 2}}, {4, {1, 2, 1, 2}}, {8, {2, 2, 1, 2}}, {16, {4, 2, 1, 2}}};

bool fits(const Shape& shape, const Shape& mesh) {
  return std::equal(shape.begin(), shape.end(), mesh.begin(), mesh.end(), std::less_equal<int64_t>());
}

// Puts the better of two shapes first: more cores of a chip, then the shorter longest side.
std::tuple<int64_t, int64_t, Shape> rank_of(const Shape& shape) {
  return {-shape.back(), *std::max_element(shape.begin(), shape.end() - 1), shape};
}

}  // namespace

std::vector<int64_t> computation_shape_of(const TpuTopology& topology, int num_cores) {
  const Shape& mesh = topology.mesh_shape();
  for (const KnownShape& known : kKnown) {
    Shape shape(known.shape.begin(), known.shape.end());
    if (known.num_cores == num_cores && fits(shape, mesh)) return shape;
  }
  std::vector<Shape> found;
  Shape shape(mesh.size(), 1);
  const std::function<void(std::size_t, int64_t)> choose = [&](std::size_t dim, int64_t rest) {
    if (dim == mesh.size()) {
      if (rest == 1) found.push_back(shape);
      return;
    }
    for (int64_t size = 1; size <= std::min(mesh[dim], rest); ++size) {
      if (rest % size != 0) continue;
      shape[dim] = size;
      choose(dim + 1, rest / size);
    }
  };
  if (num_cores > 0) choose(0, num_cores);
  if (found.empty()) {
    fail<InvalidArgument>("[topology] ", num_cores, " cores a replica are wanted, and no block of so many fits into a ",
                          "mesh of [", c10::Join(",", mesh), "]");
  }
  return *std::min_element(found.begin(), found.end(),
                           [](const Shape& a, const Shape& b) { return rank_of(a) < rank_of(b); });
}

}  // namespace cohort
