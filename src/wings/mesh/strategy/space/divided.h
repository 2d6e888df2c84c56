// Divided tensors: images, and what layers make of them, of which each replica of a line has a part.
//
// A divided tensor has the sizes of the whole and, inside, a plain tensor with this replica's part of it. LibTorch's
// dispatcher hands every operation with one to this folder, by a key of its own, before autograd sees it: a rule
// fetches from the other replicas what the operation needs and calls it with plain tensors, whose gradients are
// LibTorch's business, and wraps the result. Modules need not know: sizes are those of one device, and what has no rule
// is an error that names the operation. Nothing is computed from a part where the whole was meant.
//
// Tensors without a key are whole: every replica of the line has all of them, and their gradients. A parameter that an
// operation uses beside a divided tensor gets the sum of all parts' gradients (Megatron's f), and a sum over all parts
// passes its gradient on to each (g).
#pragma once

#include <c10/core/TensorImpl.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "cohort/communicator.h"
#include "strategy/divided.h"
#include "wings/mesh/strategy/space/ranges.h"

namespace cohort::space {

// The replicas of a line as a grid, in row-major order. Axes have 2 parts or more.
struct Grid {
  Communicator* line = nullptr;  // this replica's end
  std::vector<int64_t> parts;    // along each axis

  // Returns this replica's position along an axis.
  int64_t position(std::size_t axis) const { return position_of(line->rank(), axis); }
  // Returns a rank's position along an axis.
  int64_t position_of(int rank, std::size_t axis) const;
  // Returns the rank that differs from this one at most in its position along an axis.
  int rank_at(std::size_t axis, int64_t position) const;
  bool operator==(const Grid&) const = default;
};

constexpr int kWhole = -1;  // in place of an axis: a dimension that is not cut

// How a tensor is divided.
struct Layout {
  Grid grid;
  std::vector<int64_t> sizes;  // of the whole
  std::vector<int> axes;       // for each dimension the axis of the grid along which it is cut, or kWhole

  int64_t dim() const { return static_cast<int64_t>(sizes.size()); }
  bool is_cut(int64_t dim) const { return axes[static_cast<std::size_t>(dim)] != kWhole; }
  // Returns the rows of a dimension that this replica has: all, if it is not cut.
  Range own(int64_t dim) const;
  // Returns the sizes of this replica's part.
  std::vector<int64_t> local_sizes() const;
  // Returns the sizes of a rank's part.
  std::vector<int64_t> sizes_of(int rank) const;
  // Returns the dimensions that are cut.
  std::vector<int64_t> cut_dims() const;
};

// Returns how a divided tensor is divided.
const Layout& layout_of(const torch::Tensor& divided);
// Returns this replica's part, a plain tensor.
const torch::Tensor& part_of(const torch::Tensor& divided);
// Returns a divided tensor with this part; its sizes are layout.local_sizes().
torch::Tensor make_divided(const torch::Tensor& part, Layout layout);
// Says again whether the tensor requires a gradient, after its part was changed in place.
void refresh(const torch::Tensor& divided);

// Returns this replica's part of a tensor that the whole line has, as a divided tensor. `parts` has a number for each
// dimension; their product is the size of the line. Its gradient is that of all parts. One part is the tensor itself.
torch::Tensor divide(const torch::Tensor& whole, const std::vector<int64_t>& parts, Communicator& line);

// Returns the divided tensor of which each replica of the line has this part of a dimension; all have the same size.
torch::Tensor join_parts(const torch::Tensor& part, int64_t dim, Communicator& line);

// The pair of sequence parallelism (Korthikanti et al., arXiv:2205.05198), of tensors that are cut in one dimension.
// Returns all parts of a divided tensor as a plain one, for operations of which each replica does a part: each gets the
// sum of its part of all replicas' gradients.
torch::Tensor enter_whole(const torch::Tensor& divided);
// Returns the sum of the line's plain tensors as a divided one, of this layout; each replica gets the whole gradient.
torch::Tensor sum_into_parts(const torch::Tensor& term, const Layout& layout);

}  // namespace cohort::space
