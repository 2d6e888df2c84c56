// Operations that keep the values and change the shape.
#include <algorithm>
#include <numeric>

#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

// Returns one dimension of a tensor's shape, a tensor with one element.
Name size_of(const TracedOperation& op, const Name& x, int64_t dim) {
  return op.add("Gather", {op.add("Shape", {x}), op.to.integers({dim})});
}

void size(const TracedOperation& op) {
  if (op.node.inputs().size() < 2) op.refuse("of all dimensions has no form in ONNX here");
  const Name one = size_of(op, op.x(0), op.dim(1));
  op.give(op.add("Squeeze", {one, op.to.integers({0})}));
}

void reshape(const TracedOperation& op) {
  op.give(op.add("Reshape", {op.x(0), op.shape(1, /*may_infer=*/true)}));
}

void view_as(const TracedOperation& op) {
  op.give(op.add("Reshape", {op.x(0), op.add("Shape", {op.x(1)})}));
}

// Gives the input in another shape: the first dimensions stay, so do those from `after` on, and between them are these.
void give_reshaped(const TracedOperation& op, int64_t before, const Sizes& between, int64_t after) {
  Sizes sizes(static_cast<std::size_t>(before), 0);  // as they are
  sizes.insert(sizes.end(), between.begin(), between.end());
  Name shape = op.to.integers(sizes);
  if (after < op.rank(0)) {
    shape = op.add("Concat", {shape, op.add("Shape", {op.x(0)}, {{"start", after}})}, {{"axis", int64_t{0}}});
  }
  op.give(op.add("Reshape", {op.x(0), shape}));
}

void flatten(const TracedOperation& op) {
  if (op.rank(0) == 0) return op.give(op.add("Reshape", {op.x(0), op.to.integers({1})}));
  give_reshaped(op, op.dim(1), {-1}, op.dim(2) + 1);
}

// Splits a dimension; the list of its parts may have one -1.
void unflatten(const TracedOperation& op) {
  give_reshaped(op, op.dim(1), op.integers(2), op.dim(1) + 1);
}

void unsqueeze(const TracedOperation& op) {
  const int64_t dim = op.integer(1);
  op.give(op.add("Unsqueeze", {op.x(0), op.to.integers({dim < 0 ? dim + op.rank(0) + 1 : dim})}));
}

void squeeze(const TracedOperation& op) {
  const Sizes sizes = op.sizes(0);
  Sizes dims;
  if (op.node.inputs().size() > 1) {
    for (const int64_t dim : op.integers(1)) dims.push_back(dim < 0 ? dim + op.rank(0) : dim);
  } else {
    for (std::size_t i = 0; i < sizes.size(); ++i) dims.push_back(static_cast<int64_t>(i));
  }
  std::erase_if(dims, [&](int64_t dim) { return sizes[static_cast<std::size_t>(dim)] != 1; });
  op.give(dims.empty() ? op.x(0) : op.add("Squeeze", {op.x(0), op.to.integers(dims)}));
}

void transpose_by(const TracedOperation& op, const Sizes& order) {
  op.give(op.add("Transpose", {op.x(0)}, {{"perm", order}}));
}

Sizes in_order(const TracedOperation& op) {
  Sizes order(static_cast<std::size_t>(op.rank(0)));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void transpose(const TracedOperation& op) {
  Sizes order = in_order(op);
  if (order.empty()) return op.give(op.x(0));
  std::swap(order[static_cast<std::size_t>(op.dim(1))], order[static_cast<std::size_t>(op.dim(2))]);
  transpose_by(op, order);
}

void reverse_dims(const TracedOperation& op) {
  Sizes order = in_order(op);
  std::reverse(order.begin(), order.end());
  transpose_by(op, order);
}

void permute(const TracedOperation& op) {
  Sizes order = op.integers(1);
  for (int64_t& dim : order) dim = dim < 0 ? dim + op.rank(0) : dim;
  transpose_by(op, order);
}

void movedim(const TracedOperation& op) {
  Sizes from = op.integers(1), to = op.integers(2);
  Sizes order(static_cast<std::size_t>(op.rank(0)), -1);
  std::vector<bool> moved(order.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const int64_t source = from[i] < 0 ? from[i] + op.rank(0) : from[i];
    const int64_t target = to[i] < 0 ? to[i] + op.rank(0) : to[i];
    order[static_cast<std::size_t>(target)] = source;
    moved[static_cast<std::size_t>(source)] = true;
  }
  int64_t next = 0;
  for (int64_t& place : order) {
    if (place >= 0) continue;
    while (moved[static_cast<std::size_t>(next)]) ++next;
    place = next++;
  }
  transpose_by(op, order);
}

// Where input and output have the same size ONNX wants 1, whatever that size is.
void expand(const TracedOperation& op) {
  const Sizes from = op.sizes(0), to = op.out_sizes();
  const std::size_t added = to.size() - from.size();
  const std::vector<const torch::jit::Value*> list = op.to.list(op.in(1));
  Names parts;
  bool known = true;
  Sizes sizes;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const bool same = i >= added && from[i - added] == to[i];
    const bool now = same || list.size() != to.size() || op.to.known(list[i]);
    sizes.push_back(same ? 1 : to[i]);
    known = known && now;
    parts.push_back(now ? op.to.integers({sizes.back()})
                        : op.add("Unsqueeze", {op.to.tensor(list[i]), op.to.integers({0})}));
  }
  const Name shape = known ? op.to.integers(sizes) : op.add("Concat", parts, {{"axis", int64_t{0}}});
  op.give(op.add("Expand", {op.x(0), shape}));
}

void expand_as(const TracedOperation& op) {
  op.give(op.add("Expand", {op.x(0), op.add("Shape", {op.x(1)})}));
}

void repeat(const TracedOperation& op) {
  Name x = op.x(0);
  const int64_t added = static_cast<int64_t>(op.out_sizes().size()) - op.rank(0);
  if (added > 0) {
    Sizes dims(static_cast<std::size_t>(added));
    std::iota(dims.begin(), dims.end(), 0);
    x = op.add("Unsqueeze", {x, op.to.integers(dims)});
  }
  op.give(op.add("Tile", {x, op.shape(1, /*may_infer=*/false)}));
}

void pixel_shuffle(const TracedOperation& op) {
  op.give(op.add("DepthToSpace", {op.x(0)}, {{"blocksize", op.integer(1)}, {"mode", std::string("CRD")}}));
}

void pixel_unshuffle(const TracedOperation& op) {
  // ONNX's SpaceToDepth has another order of the channels.
  const int64_t factor = op.integer(1);
  if (op.rank(0) != 4) op.refuse("wants images of 4 dimensions");
  const Sizes sizes = {-1, op.known_size(0, 1), op.known_size(0, 2), op.known_size(0, 3)};
  const Sizes split = {-1, sizes[1], sizes[2] / factor, factor, sizes[3] / factor, factor};
  const Name parts =
      op.add("Transpose", {op.add("Reshape", {op.x(0), op.to.integers(split)})}, {{"perm", Sizes{0, 1, 3, 5, 2, 4}}});
  const Sizes joined = {-1, sizes[1] * factor * factor, sizes[2] / factor, sizes[3] / factor};
  op.give(op.add("Reshape", {parts, op.to.integers(joined)}));
}

}  // namespace

void add_shape_rules(Rules& rules) {
  rules.insert({{"aten::size", size},
                {"aten::reshape", reshape},
                {"aten::view", reshape},
                {"aten::_unsafe_view", reshape},
                {"aten::_reshape_alias", reshape},
                {"aten::view_as", view_as},
                {"aten::reshape_as", view_as},
                {"aten::flatten", flatten},
                {"aten::unflatten", unflatten},
                {"aten::unsqueeze", unsqueeze},
                {"aten::squeeze", squeeze},
                {"aten::transpose", transpose},
                {"aten::swapaxes", transpose},
                {"aten::t", reverse_dims},
                {"aten::numpy_T", reverse_dims},
                {"aten::permute", permute},
                {"aten::movedim", movedim},
                {"aten::expand", expand},
                {"aten::expand_as", expand_as},
                {"aten::repeat", repeat},
                {"aten::pixel_shuffle", pixel_shuffle},
                {"aten::pixel_unshuffle", pixel_unshuffle}});
}

}  // namespace cohort::exports
