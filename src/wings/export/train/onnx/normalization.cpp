// Norms: of batches by their running statistics, of layers, of groups of channels, of instances.
#include <ATen/Functions.h>

#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

// Returns a parameter, or a constant of so many equal values where there is none.
Name or_filled(const TracedOperation& op, std::size_t i, const Sizes& sizes, double value) {
  return op.has(i) ? op.x(i) : op.to.constant(at::full(sizes, value, op.out_dtype()));
}

// batch_norm(x, weight, bias, mean, variance, training, momentum, epsilon, cudnn)
void batch_norm(const TracedOperation& op) {
  if (op.flag(5) || !op.has(3) || !op.has(4)) {
    op.refuse("takes the statistics of the batch, as in training; wanted running statistics");
  }
  const Sizes channels = {op.known_size(0, 1)};
  op.give(op.add("BatchNormalization",
                 {op.x(0), or_filled(op, 1, channels, 1.0), or_filled(op, 2, channels, 0.0), op.x(3), op.x(4)},
                 {{"epsilon", op.number(7)}}));
}

// layer_norm(x, shape, weight, bias, epsilon, cudnn)
void layer_norm(const TracedOperation& op) {
  const Sizes shape = op.integers(1);
  Names inputs = {op.x(0), or_filled(op, 2, shape, 1.0)};
  if (op.has(3)) inputs.push_back(op.x(3));
  op.give(
      op.add("LayerNormalization", inputs, {{"axis", -static_cast<int64_t>(shape.size())}, {"epsilon", op.number(4)}}));
}

// Returns a value for each channel as it is multiplied with x.
Name per_channel(const TracedOperation& op, std::size_t i) {
  Sizes shape(static_cast<std::size_t>(op.rank(0) - 1), 1);
  shape[0] = -1;
  return op.add("Reshape", {op.x(i), op.to.integers(shape)});
}

// group_norm(x, groups, weight, bias, epsilon, cudnn): a group is an instance whose values stand in a row.
void group_norm(const TracedOperation& op) {
  const int64_t groups = op.integer(1);
  const torch::ScalarType dtype = op.out_dtype();
  const Name rows = op.add("Reshape", {op.x(0), op.to.integers({0, groups, -1})});
  const Name normal =
      op.add("InstanceNormalization",
             {rows, op.to.constant(at::ones({groups}, dtype)), op.to.constant(at::zeros({groups}, dtype))},
             {{"epsilon", op.number(4)}});
  Name y = op.add("Reshape", {normal, op.add("Shape", {op.x(0)})});
  if (op.has(2)) y = op.add("Mul", {y, per_channel(op, 2)});
  if (op.has(3)) y = op.add("Add", {y, per_channel(op, 3)});
  op.give(y);
}

// instance_norm(x, weight, bias, mean, variance, use_input_stats, momentum, epsilon, cudnn)
void instance_norm(const TracedOperation& op) {
  const Sizes channels = {op.known_size(0, 1)};
  const Name weight = or_filled(op, 1, channels, 1.0), bias = or_filled(op, 2, channels, 0.0);
  const Attributes epsilon = {{"epsilon", op.number(7)}};
  op.give(op.flag(5) ? op.add("InstanceNormalization", {op.x(0), weight, bias}, epsilon)
                     : op.add("BatchNormalization", {op.x(0), weight, bias, op.x(3), op.x(4)}, epsilon));
}

}  // namespace

void add_normalization_rules(Rules& rules) {
  rules.insert({{"aten::batch_norm", batch_norm},
                {"aten::layer_norm", layer_norm},
                {"aten::group_norm", group_norm},
                {"aten::instance_norm", instance_norm}});
}

}  // namespace cohort::exports
