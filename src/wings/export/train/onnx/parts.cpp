// Operations that take parts of tensors and put parts together.
#include <algorithm>
#include <limits>

#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

Names tensors_of(const TracedOperation& op, std::size_t i, torch::ScalarType dtype) {
  Names names;
  for (const torch::jit::Value* const each : op.to.list(op.in(i))) {
    names.push_back(op.cast(op.to.tensor(each), op.dtype_of(each), dtype));
  }
  return names;
}

void cat(const TracedOperation& op) {
  const int64_t dim = op.integer(1);
  const auto rank = static_cast<int64_t>(op.out_sizes().size());
  op.give(op.add("Concat", tensors_of(op, 0, op.out_dtype()), {{"axis", dim < 0 ? dim + rank : dim}}));
}

void stack(const TracedOperation& op) {
  const int64_t dim = op.integer(1);
  const auto rank = static_cast<int64_t>(op.out_sizes().size());
  const int64_t axis = dim < 0 ? dim + rank : dim;
  Names parts = tensors_of(op, 0, op.out_dtype());
  for (Name& part : parts) part = op.add("Unsqueeze", {part, op.to.integers({axis})});
  op.give(op.add("Concat", parts, {{"axis", axis}}));
}

// Returns x[begin:end:step] in one dimension. Names of tensors with one element say where.
Name slice_of(const TracedOperation& op, const Name& x, int64_t dim, const Name& begin, const Name& end, int64_t step) {
  return op.add("Slice", {x, begin, end, op.to.integers({dim}), op.to.integers({step})});
}

// Returns a number, which may depend on the batch, as a tensor with one element.
Name place(const TracedOperation& op, std::size_t i, int64_t otherwise) {
  if (!op.has(i)) return op.to.integers({otherwise});
  if (op.to.known(op.in(i))) return op.to.integers({op.integer(i)});
  return op.add("Unsqueeze", {op.x(i), op.to.integers({0})});
}

void slice(const TracedOperation& op) {
  op.give(slice_of(op, op.x(0), op.dim(1), place(op, 2, 0), place(op, 3, kEnd), op.has(4) ? op.integer(4) : 1));
}

void narrow(const TracedOperation& op) {
  const int64_t begin = op.integer(2);
  if (begin < 0) op.refuse("from the end has no form in ONNX here");
  const Name end = op.to.known(op.in(3)) ? op.to.integers({begin + op.integer(3)})
                                         : op.add("Add", {place(op, 3, 0), op.to.integers({begin})});
  op.give(slice_of(op, op.x(0), op.dim(1), op.to.integers({begin}), end, 1));
}

void select(const TracedOperation& op) {
  const Name index =
      op.to.known(op.in(2)) ? op.to.constant(torch::scalar_tensor(op.integer(2), torch::kLong)) : op.x(2);
  op.give(op.add("Gather", {op.x(0), index}, {{"axis", op.dim(1)}}));
}

// Gives slices of these sizes.
void give_parts(const TracedOperation& op, int64_t dim, const Sizes& sizes) {
  Names parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(slice_of(op, op.x(0), dim, op.to.integers({begin}), op.to.integers({begin + size}), 1));
    begin += size;
  }
  op.to.give_list(op.node.output(0), std::move(parts));
}

void give_equal_parts(const TracedOperation& op, int64_t dim, int64_t each) {
  const int64_t all = op.known_size(0, dim);
  Sizes sizes;
  for (int64_t begin = 0; begin < all; begin += each) sizes.push_back(std::min(each, all - begin));
  give_parts(op, dim, sizes);
}

void split(const TracedOperation& op) {
  const auto value = op.to.known(op.in(1));
  if (value && value->isInt()) return give_equal_parts(op, op.dim(2), op.integer(1));
  give_parts(op, op.dim(2), op.integers(1));
}

void chunk(const TracedOperation& op) {
  const int64_t dim = op.dim(2), number = op.integer(1);
  give_equal_parts(op, dim, (op.known_size(0, dim) + number - 1) / number);
}

void unbind(const TracedOperation& op) {
  const int64_t dim = op.dim(1), number = op.known_size(0, dim);
  Names parts;
  for (int64_t i = 0; i < number; ++i) {
    const Name index = op.to.constant(torch::scalar_tensor(i, torch::kLong));
    parts.push_back(op.add("Gather", {op.x(0), index}, {{"axis", dim}}));
  }
  op.to.give_list(op.node.output(0), std::move(parts));
}

void flip(const TracedOperation& op) {
  Name x = op.x(0);
  for (const int64_t each : op.integers(1)) {
    const int64_t dim = each < 0 ? each + op.rank(0) : each;
    x = slice_of(op, x, dim, op.to.integers({-1}), op.to.integers({-kEnd}), -1);
  }
  op.give(x);
}

void roll(const TracedOperation& op) {
  const Sizes shifts = op.integers(1), dims = op.integers(2);
  if (dims.empty()) op.refuse("of all elements has no form in ONNX here");
  Name x = op.x(0);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[i] < 0 ? dims[i] + op.rank(0) : dims[i];
    const int64_t size = op.known_size(0, dim);
    const Name middle = op.to.integers({size - ((shifts[i] % size) + size) % size});
    x = op.add(
        "Concat",
        {slice_of(op, x, dim, middle, op.to.integers({kEnd}), 1), slice_of(op, x, dim, op.to.integers({0}), middle, 1)},
        {{"axis", dim}});
  }
  op.give(x);
}

// LibTorch begins with the last dimension, ONNX has all beginnings and then all ends.
void pad_by(const TracedOperation& op, const Sizes& pads, const char* mode, const Name& value) {
  const auto rank = static_cast<std::size_t>(op.rank(0));
  Sizes all(2 * rank, 0);
  for (std::size_t i = 0; i < pads.size() / 2; ++i) {
    all[rank - 1 - i] = pads[2 * i];
    all[2 * rank - 1 - i] = pads[2 * i + 1];
  }
  Names inputs = {op.x(0), op.to.integers(all)};
  if (!value.empty()) inputs.push_back(value);
  op.give(op.add("Pad", inputs, {{"mode", std::string(mode)}}));
}

void constant_pad(const TracedOperation& op) {
  pad_by(op, op.integers(1), "constant", op.has(2) ? op.x_as(2, op.out_dtype()) : op.scalar(0.0, op.out_dtype()));
}

void reflection_pad(const TracedOperation& op) {
  pad_by(op, op.integers(1), "reflect", {});
}

void replication_pad(const TracedOperation& op) {
  pad_by(op, op.integers(1), "edge", {});
}

void pad(const TracedOperation& op) {
  const std::string mode = op.text(2);
  if (mode == "reflect") return reflection_pad(op);
  if (mode == "replicate") return replication_pad(op);
  if (mode != "constant") op.refuse("in the mode \"" + mode + "\" has no form in ONNX here");
  pad_by(op, op.integers(1), "constant", op.has(3) ? op.x_as(3, op.out_dtype()) : op.scalar(0.0, op.out_dtype()));
}

void index_select(const TracedOperation& op) {
  op.give(op.add("Gather", {op.x(0), op.x(2)}, {{"axis", op.dim(1)}}));
}

void gather(const TracedOperation& op) {
  op.give(op.add("GatherElements", {op.x(0), op.x(2)}, {{"axis", op.dim(1)}}));
}

void embedding(const TracedOperation& op) {
  op.give(op.add("Gather", {op.x(0), op.x(1)}));
}

// x[:, :, indices]: one dimension is indexed.
void index(const TracedOperation& op) {
  const std::vector<const torch::jit::Value*> list = op.to.list(op.in(1));
  std::optional<std::size_t> indexed;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (const auto value = op.to.known(list[i]); value && value->isNone()) continue;
    if (indexed) op.refuse("with several indices has no form in ONNX here");
    indexed = i;
  }
  if (!indexed || op.dtype_of(list[*indexed]) == torch::kBool) {
    op.refuse("with masks, whose results have other sizes, has no form in ONNX here");
  }
  op.give(op.add("Gather", {op.x(0), op.to.tensor(list[*indexed])}, {{"axis", static_cast<int64_t>(*indexed)}}));
}

void triangle(const TracedOperation& op, int64_t upper) {
  const Name diagonal = op.to.constant(torch::scalar_tensor(op.integer(1), torch::kLong));
  op.give(op.add("Trilu", {op.x(0), diagonal}, {{"upper", upper}}));
}

void triu(const TracedOperation& op) {
  triangle(op, 1);
}

void tril(const TracedOperation& op) {
  triangle(op, 0);
}

}  // namespace

void add_part_rules(Rules& rules) {
  rules.insert({{"aten::cat", cat},
                {"aten::concat", cat},
                {"aten::stack", stack},
                {"aten::slice", slice},
                {"aten::narrow", narrow},
                {"aten::select", select},
                {"aten::split", split},
                {"aten::split_with_sizes", split},
                {"aten::unsafe_split", split},
                {"aten::chunk", chunk},
                {"aten::unsafe_chunk", chunk},
                {"aten::unbind", unbind},
                {"aten::flip", flip},
                {"aten::roll", roll},
                {"aten::constant_pad_nd", constant_pad},
                {"aten::pad", pad},
                {"aten::index_select", index_select},
                {"aten::gather", gather},
                {"aten::embedding", embedding},
                {"aten::index", index},
                {"aten::triu", triu},
                {"aten::tril", tril}});
  for (const char* const dims : {"1d", "2d", "3d"}) {
    rules[std::string("aten::reflection_pad") + dims] = reflection_pad;
    rules[std::string("aten::replication_pad") + dims] = replication_pad;
  }
}

}  // namespace cohort::exports
