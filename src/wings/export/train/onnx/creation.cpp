// Operations that make tensors.
#include <ATen/Functions.h>

#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

// Gives a tensor of these sizes with one value, of the dtype that tracing has seen.
void give_filled(const TracedOperation& op, const Name& shape, double value) {
  const Name one = op.scalar(value, op.out_dtype());
  op.give(op.add("Expand", {one, shape}));
}

void zeros(const TracedOperation& op) {
  give_filled(op, op.shape(0, /*may_infer=*/false), 0.0);
}

void ones(const TracedOperation& op) {
  give_filled(op, op.shape(0, /*may_infer=*/false), 1.0);
}

void full(const TracedOperation& op) {
  give_filled(op, op.shape(0, /*may_infer=*/false), op.number(1));
}

void new_zeros(const TracedOperation& op) {
  give_filled(op, op.shape(1, /*may_infer=*/false), 0.0);
}

void new_ones(const TracedOperation& op) {
  give_filled(op, op.shape(1, /*may_infer=*/false), 1.0);
}

void new_full(const TracedOperation& op) {
  give_filled(op, op.shape(1, /*may_infer=*/false), op.number(2));
}

void zeros_like(const TracedOperation& op) {
  give_filled(op, op.add("Shape", {op.x(0)}), 0.0);
}

void ones_like(const TracedOperation& op) {
  give_filled(op, op.add("Shape", {op.x(0)}), 1.0);
}

void full_like(const TracedOperation& op) {
  give_filled(op, op.add("Shape", {op.x(0)}), op.number(1));
}

void scalar_tensor(const TracedOperation& op) {
  op.give(op.scalar(op.number(0), op.out_dtype()));
}

// arange(end), arange(start, end) or arange(start, end, step), and then four options. One number may depend on the
// batch.
void arange(const TracedOperation& op) {
  const std::size_t numbers = op.node.inputs().size() - 4;
  const torch::ScalarType dtype = op.out_dtype();
  const Name begin = numbers == 1 ? op.scalar(0.0, dtype) : op.x_as(0, dtype);
  const Name end = op.x_as(numbers == 1 ? 0 : 1, dtype);
  const Name step = numbers == 3 ? op.x_as(2, dtype) : op.scalar(1.0, dtype);
  bool known = true;
  for (std::size_t i = 0; i < numbers; ++i) known = known && op.to.known(op.in(i));
  if (!known) return op.give(op.add("Range", {begin, end, step}));
  op.give(op.to.constant(at::arange(numbers == 1 ? 0.0 : op.number(0), op.number(numbers == 1 ? 0 : 1),
                                    numbers == 3 ? op.number(2) : 1.0, torch::kDouble)
                             .to(dtype)));
}

}  // namespace

void add_creation_rules(Rules& rules) {
  rules.insert({{"aten::zeros", zeros},
                {"aten::ones", ones},
                {"aten::full", full},
                {"aten::new_zeros", new_zeros},
                {"aten::new_ones", new_ones},
                {"aten::new_full", new_full},
                {"aten::zeros_like", zeros_like},
                {"aten::ones_like", ones_like},
                {"aten::full_like", full_like},
                {"aten::scalar_tensor", scalar_tensor},
                {"aten::arange", arange}});
}

}  // namespace cohort::exports
