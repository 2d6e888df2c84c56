// Sums, means, extremes, their places, orders.

#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

// Returns the dimensions of an argument; empty for all of them.
Sizes dims_of(const TracedOperation& op, std::size_t i) {
  if (i >= op.node.inputs().size() || !op.has(i)) return {};
  Sizes dims = op.integers(i);
  for (int64_t& dim : dims) dim = dim < 0 ? dim + op.rank(0) : dim;
  return dims;
}

Name sum_of(const TracedOperation& op, const Name& x, const Sizes& dims, bool keep) {
  Names inputs = {x};
  if (!dims.empty()) inputs.push_back(op.to.integers(dims));
  return op.add("ReduceSum", inputs, {{"keepdims", static_cast<int64_t>(keep)}});
}

// The other reductions of this set of operations take the dimensions as an attribute.
Name reduced(const TracedOperation& op, const char* operation, const Name& x, const Sizes& dims, bool keep) {
  Attributes attributes = {{"keepdims", static_cast<int64_t>(keep)}};
  if (!dims.empty()) attributes.emplace_back("axes", dims);
  return op.add(operation, {x}, attributes);
}

// sum(x, dtype) or sum(x, dims, keepdim, dtype)
bool has_dims(const TracedOperation& op) {
  return op.node.inputs().size() > 2;
}

void sum(const TracedOperation& op) {
  const Name x = op.x_as(0, op.out_dtype());
  op.give(has_dims(op) ? sum_of(op, x, dims_of(op, 1), op.flag(2)) : sum_of(op, x, {}, false));
}

void mean(const TracedOperation& op) {
  const Name x = op.x_as(0, op.out_dtype());
  op.give(has_dims(op) ? reduced(op, "ReduceMean", x, dims_of(op, 1), op.flag(2))
                       : reduced(op, "ReduceMean", x, {}, false));
}

void amax(const TracedOperation& op) {
  op.give(reduced(op, "ReduceMax", op.x(0), dims_of(op, 1), op.flag(2)));
}

void amin(const TracedOperation& op) {
  op.give(reduced(op, "ReduceMin", op.x(0), dims_of(op, 1), op.flag(2)));
}

void logsumexp(const TracedOperation& op) {
  op.give(reduced(op, "ReduceLogSumExp", op.x(0), dims_of(op, 1), op.flag(2)));
}

// norm(x, p, dims, keepdim)
void norm(const TracedOperation& op) {
  if (op.node.inputs().size() < 4) op.refuse("of all elements has no form in ONNX here");
  const double p = op.has(1) ? op.number(1) : 2.0;
  if (p != 1.0 && p != 2.0) op.refuse(c10::str("with p = ", p, " has no form in ONNX here"));
  op.give(reduced(op, p == 2.0 ? "ReduceL2" : "ReduceL1", op.x(0), dims_of(op, 2), op.flag(3)));
}

// any(x), any(x, dim, keepdim): of numbers, because ONNX reduces no booleans
void truth(const TracedOperation& op, const char* operation) {
  const Name x = op.cast(op.x_as(0, torch::kBool), torch::kBool, torch::kInt);
  const bool all = op.node.inputs().size() < 3;
  op.give(op.cast(reduced(op, operation, x, all ? Sizes() : dims_of(op, 1), !all && op.flag(2)), torch::kInt,
                  torch::kBool));
}

void any(const TracedOperation& op) {
  truth(op, "ReduceMax");
}

void all(const TracedOperation& op) {
  truth(op, "ReduceMin");
}

void argument(const TracedOperation& op, const char* operation) {
  if (!op.has(1)) op.refuse("of all elements has no form in ONNX here");
  op.give(op.add(operation, {op.x(0)}, {{"axis", op.dim(1)}, {"keepdims", static_cast<int64_t>(op.flag(2))}}));
}

void argmax(const TracedOperation& op) {
  argument(op, "ArgMax");
}

void argmin(const TracedOperation& op) {
  argument(op, "ArgMin");
}

// max(x), max(x, other) or max(x, dim, keepdim), which returns the places, too
void extreme(const TracedOperation& op, const char* reduction, const char* places, const char* of_two) {
  if (op.node.inputs().size() == 1) return op.give(reduced(op, reduction, op.x(0), {}, false));
  if (op.node.inputs().size() == 2) {
    return op.give(op.add(of_two, {op.x_as(0, op.out_dtype()), op.x_as(1, op.out_dtype())}));
  }
  const int64_t dim = op.dim(1);
  const auto keep = static_cast<int64_t>(op.flag(2));
  op.to.give(op.node.output(0), reduced(op, reduction, op.x(0), {dim}, keep != 0));
  if (op.node.output(1)->uses().empty()) return;
  op.to.give(op.node.output(1), op.add(places, {op.x(0)}, {{"axis", dim}, {"keepdims", keep}}));
}

void max(const TracedOperation& op) {
  extreme(op, "ReduceMax", "ArgMax", "Max");
}

void min(const TracedOperation& op) {
  extreme(op, "ReduceMin", "ArgMin", "Min");
}

void cumsum(const TracedOperation& op) {
  const Name axis = op.to.constant(torch::scalar_tensor(op.dim(1), torch::kLong));
  op.give(op.add("CumSum", {op.x_as(0, op.out_dtype()), axis}));
}

void give_largest(const TracedOperation& op, int64_t dim, int64_t number, bool largest) {
  const Names both = op.to.add_many("TopK", {op.x(0), op.to.integers({number})},
                                    {{"axis", dim}, {"largest", static_cast<int64_t>(largest)}}, 2);
  op.to.give(op.node.output(0), both[0]);
  op.to.give(op.node.output(1), both[1]);
}

// topk(x, k, dim, largest, sorted)
void topk(const TracedOperation& op) {
  give_largest(op, op.dim(2), op.integer(1), op.flag(3));
}

// sort(x, dim, descending)
void sort(const TracedOperation& op) {
  const int64_t dim = op.dim(1);
  give_largest(op, dim, op.known_size(0, dim), op.flag(2));
}

}  // namespace

void add_reduction_rules(Rules& rules) {
  rules.insert({{"aten::sum", sum},
                {"aten::mean", mean},
                {"aten::amax", amax},
                {"aten::amin", amin},
                {"aten::logsumexp", logsumexp},
                {"aten::norm", norm},
                {"aten::any", any},
                {"aten::all", all},
                {"aten::argmax", argmax},
                {"aten::argmin", argmin},
                {"aten::max", max},
                {"aten::min", min},
                {"aten::cumsum", cumsum},
                {"aten::topk", topk},
                {"aten::sort", sort}});
}

}  // namespace cohort::exports
