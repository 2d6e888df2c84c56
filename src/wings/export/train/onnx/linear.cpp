// Products of matrices, and attention.
#include <cmath>
#include <limits>

#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

Name transposed(const TracedOperation& op, std::size_t i) {
  Sizes order;
  for (int64_t dim = 0; dim < op.rank(i); ++dim) order.push_back(dim);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return op.add("Transpose", {op.x(i)}, {{"perm", order}});
}

// x weight^T + bias
void linear(const TracedOperation& op) {
  if (op.rank(0) == 2 && op.rank(1) == 2) {
    Names inputs = {op.x(0), op.x(1)};
    if (op.has(2)) inputs.push_back(op.x(2));
    return op.give(op.add("Gemm", inputs, {{"transB", int64_t{1}}}));
  }
  if (op.rank(1) != 2) op.refuse("with a weight of one dimension has no form in ONNX here");
  const Name product = op.add("MatMul", {op.x(0), transposed(op, 1)});
  op.give(op.has(2) ? op.add("Add", {product, op.x(2)}) : product);
}

void matmul(const TracedOperation& op) {
  op.give(op.add("MatMul", {op.x(0), op.x(1)}));
}

// beta * self + alpha * a b
void addmm(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  const auto times = [&](const Name& x, std::size_t factor) {
    return op.number(factor) == 1.0 ? x : op.add("Mul", {x, op.scalar(op.number(factor), dtype)});
  };
  const Name product = times(op.add("MatMul", {op.x(1), op.x(2)}), 4);
  if (op.number(3) == 0.0) return op.give(product);
  op.give(op.add("Add", {times(op.x(0), 3), product}));
}

void einsum(const TracedOperation& op) {
  Names inputs;
  for (const torch::jit::Value* const each : op.to.list(op.in(1))) inputs.push_back(op.to.tensor(each));
  op.give(op.add("Einsum", inputs, {{"equation", op.text(0)}}));
}

// scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale, gqa), of LibTorch 2
void attention(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  if (op.number(4) != 0.0) op.refuse("drops values, as in training");
  if (op.has(7) && op.flag(7)) op.refuse("with fewer heads of keys has no form in ONNX here");
  const Sizes query = op.sizes(0);
  const double scale = op.has(6) ? op.number(6) : 1.0 / std::sqrt(static_cast<double>(query.back()));
  const Name scaled = op.add("Mul", {op.x(0), op.scalar(scale, dtype)});
  Name scores = op.add("MatMul", {scaled, transposed(op, 1)});
  const double unseen = -std::numeric_limits<double>::infinity();
  if (op.flag(5)) {
    const torch::Tensor later =
        torch::full({op.known_size(0, op.rank(0) - 2), op.known_size(1, op.rank(1) - 2)}, unseen, torch::kDouble)
            .triu(1);
    scores = op.add("Add", {scores, op.to.constant(later.to(dtype))});
  } else if (op.has(3) && op.dtype(3) == torch::kBool) {
    scores = op.add("Where", {op.x(3), scores, op.scalar(unseen, dtype)});
  } else if (op.has(3)) {
    scores = op.add("Add", {scores, op.x_as(3, dtype)});
  }
  op.give(op.add("MatMul", {op.add("Softmax", {scores}, {{"axis", int64_t{-1}}}), op.x(2)}));
}

}  // namespace

void add_linear_rules(Rules& rules) {
  rules.insert({{"aten::linear", linear},
                {"aten::matmul", matmul},
                {"aten::mm", matmul},
                {"aten::bmm", matmul},
                {"aten::mv", matmul},
                {"aten::dot", matmul},
                {"aten::addmm", addmm},
                {"aten::baddbmm", addmm},
                {"aten::einsum", einsum},
                {"aten::scaled_dot_product_attention", attention}});
}

}  // namespace cohort::exports
