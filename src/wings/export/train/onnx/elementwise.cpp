// Operations with one tensor, element by element: activations and functions.
#include <cmath>
#include <unordered_map>

#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

Name multiply(const TracedOperation& op, const Name& a, const Name& b) {
  return op.add("Mul", {a, b});
}

void square(const TracedOperation& op) {
  op.give(multiply(op, op.x(0), op.x(0)));
}

// ONNX has neither of these two; near 0 they are as exact as float32 is near 1.
void expm1(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  op.give(op.add("Sub", {op.add("Exp", {op.x_as(0, dtype)}), op.scalar(1.0, dtype)}));
}

void log1p(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  op.give(op.add("Log", {op.add("Add", {op.x_as(0, dtype), op.scalar(1.0, dtype)})}));
}

void rsqrt(const TracedOperation& op) {
  op.give(op.add("Reciprocal", {op.add("Sqrt", {op.x_as(0, op.out_dtype())})}));
}

void silu(const TracedOperation& op) {
  op.give(multiply(op, op.x(0), op.add("Sigmoid", {op.x(0)})));
}

void mish(const TracedOperation& op) {
  op.give(multiply(op, op.x(0), op.add("Tanh", {op.add("Softplus", {op.x(0)})})));
}

void log_sigmoid(const TracedOperation& op) {
  op.give(op.add("Neg", {op.add("Softplus", {op.add("Neg", {op.x(0)})})}));
}

void gelu(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  const Name x = op.x(0);
  Name inner;
  if (op.has(1) && op.text(1) == "tanh") {
    const Name cube = multiply(op, multiply(op, x, x), multiply(op, x, op.scalar(0.044715, dtype)));
    inner = op.add("Tanh", {multiply(op, op.add("Add", {x, cube}), op.scalar(std::sqrt(2.0 / M_PI), dtype))});
  } else {
    inner = op.add("Erf", {multiply(op, x, op.scalar(std::sqrt(0.5), dtype))});
  }
  const Name half = multiply(op, x, op.scalar(0.5, dtype));
  op.give(multiply(op, half, op.add("Add", {inner, op.scalar(1.0, dtype)})));
}

void softplus(const TracedOperation& op) {
  const double beta = op.number(1);
  if (beta == 1.0) return op.give(op.add("Softplus", {op.x(0)}));
  const Name times = op.scalar(beta, op.out_dtype());
  op.give(op.add("Div", {op.add("Softplus", {multiply(op, op.x(0), times)}), times}));
}

void elu(const TracedOperation& op) {
  if (op.number(2) != 1.0 || op.number(3) != 1.0) return op.refuse("with a scale has no form in ONNX here");
  op.give(op.add("Elu", {op.x(0)}, {{"alpha", op.number(1)}}));
}

void celu(const TracedOperation& op) {
  op.give(op.add("Celu", {op.x(0)}, {{"alpha", op.number(1)}}));
}

void leaky_relu(const TracedOperation& op) {
  op.give(op.add("LeakyRelu", {op.x(0)}, {{"alpha", op.number(1)}}));
}

void hardsigmoid(const TracedOperation& op) {
  op.give(op.add("HardSigmoid", {op.x(0)}, {{"alpha", 1.0 / 6.0}, {"beta", 0.5}}));
}

void softshrink(const TracedOperation& op) {
  op.give(op.add("Shrink", {op.x(0)}, {{"lambd", op.number(1)}, {"bias", op.number(1)}}));
}

void hardshrink(const TracedOperation& op) {
  op.give(op.add("Shrink", {op.x(0)}, {{"lambd", op.number(1)}, {"bias", 0.0}}));
}

// clamp(x, min, max); either may be a tensor or be left out.
void clamp(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  Name x = op.x_as(0, dtype);
  if (op.has(1)) x = op.add("Max", {x, op.x_as(1, dtype)});
  if (op.has(2)) x = op.add("Min", {x, op.x_as(2, dtype)});
  op.give(x);
}

void clamp_max(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  op.give(op.add("Min", {op.x_as(0, dtype), op.x_as(1, dtype)}));
}

void relu6(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  op.give(op.add("Min", {op.add("Relu", {op.x(0)}), op.scalar(6.0, dtype)}));
}

// The slope is one number or one for each channel, which is dimension 1.
void prelu(const TracedOperation& op) {
  Name slope = op.x(1);
  const Sizes weight = op.sizes(1);
  if (weight.size() == 1 && weight[0] > 1 && op.rank(0) > 2) {
    Sizes shape(static_cast<std::size_t>(op.rank(0) - 1), 1);
    shape[0] = weight[0];
    slope = op.add("Reshape", {slope, op.to.integers(shape)});
  }
  op.give(op.add("PRelu", {op.x(0), slope}));
}

void glu(const TracedOperation& op) {
  const int64_t dim = op.dim(1);
  const Names halves = op.to.add_many("Split", {op.x(0)}, {{"axis", dim}}, 2);
  op.give(multiply(op, halves[0], op.add("Sigmoid", {halves[1]})));
}

void softmax(const TracedOperation& op) {
  op.give(op.add("Softmax", {op.x_as(0, op.out_dtype())}, {{"axis", op.dim(1)}}));
}

void log_softmax(const TracedOperation& op) {
  op.give(op.add("LogSoftmax", {op.x_as(0, op.out_dtype())}, {{"axis", op.dim(1)}}));
}

void logical_not(const TracedOperation& op) {
  op.give(op.add("Not", {op.x_as(0, torch::kBool)}));
}

// What computes nothing: the values stay, perhaps in another dtype or with other strides.
void same_values(const TracedOperation& op) {
  op.give(op.cast(op.x(0), op.dtype(0), op.out_dtype()));
}

void dropout(const TracedOperation& op) {
  if (op.flag(2)) op.refuse("drops values, as in training");
  op.give(op.x(0));
}

// The operations that ONNX has, too.
const std::unordered_map<std::string, const char*> kSame = {
    {"aten::relu", "Relu"},
    {"aten::sigmoid", "Sigmoid"},
    {"aten::tanh", "Tanh"},
    {"aten::exp", "Exp"},
    {"aten::log", "Log"},
    {"aten::sqrt", "Sqrt"},
    {"aten::abs", "Abs"},
    {"aten::neg", "Neg"},
    {"aten::sin", "Sin"},
    {"aten::cos", "Cos"},
    {"aten::erf", "Erf"},
    {"aten::floor", "Floor"},
    {"aten::ceil", "Ceil"},
    {"aten::round", "Round"},
    {"aten::sign", "Sign"},
    {"aten::selu", "Selu"},
    {"aten::hardswish", "HardSwish"},
    {"aten::reciprocal", "Reciprocal"},
};

void same_operation(const TracedOperation& op) {
  op.give(op.add(kSame.at(op.node.kind().toQualString()), {op.x_as(0, op.out_dtype())}));
}

}  // namespace

void add_elementwise_rules(Rules& rules) {
  for (const auto& [name, same] : kSame) rules[name] = same_operation;
  rules.insert({{"aten::square", square},
                {"aten::expm1", expm1},
                {"aten::log1p", log1p},
                {"aten::rsqrt", rsqrt},
                {"aten::silu", silu},
                {"aten::mish", mish},
                {"aten::log_sigmoid", log_sigmoid},
                {"aten::gelu", gelu},
                {"aten::softplus", softplus},
                {"aten::elu", elu},
                {"aten::celu", celu},
                {"aten::leaky_relu", leaky_relu},
                {"aten::hardsigmoid", hardsigmoid},
                {"aten::softshrink", softshrink},
                {"aten::hardshrink", hardshrink},
                {"aten::clamp", clamp},
                {"aten::clip", clamp},
                {"aten::hardtanh", clamp},
                {"aten::clamp_min", clamp},
                {"aten::clamp_max", clamp_max},
                {"aten::relu6", relu6},
                {"aten::prelu", prelu},
                {"aten::glu", glu},
                {"aten::softmax", softmax},
                {"aten::_softmax", softmax},
                {"aten::log_softmax", log_softmax},
                {"aten::_log_softmax", log_softmax},
                {"aten::logical_not", logical_not}});
  for (const char* const name : {"contiguous", "clone", "detach", "alias", "to", "_to_copy", "type_as", "lift_fresh",
                                 "resolve_conj", "resolve_neg"}) {
    rules[std::string("aten::") + name] = same_values;
  }
  for (const char* const name : {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"}) {
    rules[std::string("aten::") + name] = dropout;
  }
}

}  // namespace cohort::exports
