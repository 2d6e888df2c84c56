// Operations with several tensors, element by element: arithmetic, comparisons, choices.
#include <ATen/Functions.h>

#include "wings/export/train/onnx/rules.h"

namespace cohort::exports {

namespace {

// Returns the dtype in which LibTorch computes with these two, of which one may be a number.
torch::ScalarType common_dtype(const TracedOperation& op, std::size_t a, std::size_t b) {
  const auto tensor = [&](std::size_t i) {
    return at::empty(op.sizes(i).empty() ? Sizes() : Sizes{0}, at::TensorOptions(op.dtype(i)));
  };
  const auto number = [&](std::size_t i) { return op.to.known(op.in(i)).value_or(c10::IValue(1)).toScalar(); };
  if (!op.is_tensor(a)) return at::result_type(number(a), tensor(b));
  return op.is_tensor(b) ? at::result_type(tensor(a), tensor(b)) : at::result_type(tensor(a), number(b));
}

Name apply(const TracedOperation& op, const char* operation, torch::ScalarType dtype) {
  return op.add(operation, {op.x_as(0, dtype), op.x_as(1, dtype)});
}

// The second one is multiplied by alpha.
void add_scaled(const TracedOperation& op, const char* operation, std::size_t first, std::size_t second) {
  if (!op.is_tensor(0)) return op.give(op.add(operation, {op.x(0), op.x(1)}));  // sizes
  const torch::ScalarType dtype = op.out_dtype();
  if (dtype == torch::kBool) return op.give(op.add("Or", {op.x(first), op.x(second)}));
  Name x = op.x_as(second, dtype);
  if (op.has(2) && op.number(2) != 1.0) x = op.add("Mul", {x, op.scalar(op.number(2), dtype)});
  op.give(op.add(operation, {op.x_as(first, dtype), x}));
}

void add(const TracedOperation& op) {
  add_scaled(op, "Add", 0, 1);
}

void sub(const TracedOperation& op) {
  add_scaled(op, "Sub", 0, 1);
}

// rsub(x, y) is y - x, and alpha multiplies x.
void rsub(const TracedOperation& op) {
  add_scaled(op, "Sub", 1, 0);
}

void mul(const TracedOperation& op) {
  if (!op.is_tensor(0)) return op.give(op.add("Mul", {op.x(0), op.x(1)}));  // sizes
  if (op.out_dtype() == torch::kBool) return op.give(op.add("And", {op.x(0), op.x(1)}));
  op.give(apply(op, "Mul", op.out_dtype()));
}

// Returns the largest integer that is no larger than a / b.
Name floor_of_quotient(const TracedOperation& op, torch::ScalarType dtype) {
  if (at::isFloatingType(dtype)) return op.add("Floor", {apply(op, "Div", dtype)});
  // The integers of a division lie nearer to zero.
  const Name a = op.x_as(0, dtype), b = op.x_as(1, dtype);
  return op.add("Div", {op.add("Sub", {a, op.add("Mod", {a, b})}), b});
}

void div(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  if (!op.has(2)) return op.give(apply(op, "Div", dtype));
  if (op.text(2) == "floor") return op.give(floor_of_quotient(op, dtype));
  const Name quotient = apply(op, "Div", dtype);
  if (!at::isFloatingType(dtype)) return op.give(quotient);
  op.give(op.add("Mul", {op.add("Sign", {quotient}), op.add("Floor", {op.add("Abs", {quotient})})}));
}

void floor_divide(const TracedOperation& op) {
  op.give(floor_of_quotient(op, op.out_dtype()));
}

void remainder(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  if (!at::isFloatingType(dtype)) return op.give(apply(op, "Mod", dtype));
  op.give(op.add("Sub", {op.x_as(0, dtype), op.add("Mul", {floor_of_quotient(op, dtype), op.x_as(1, dtype)})}));
}

void fmod(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  op.give(op.add("Mod", {op.x_as(0, dtype), op.x_as(1, dtype)}, {{"fmod", int64_t{1}}}));
}

void compare(const TracedOperation& op, const char* operation, bool negated) {
  torch::ScalarType dtype = common_dtype(op, 0, 1);
  // ONNX compares no booleans by order.
  if (dtype == torch::kBool && std::string(operation) != "Equal") dtype = torch::kLong;
  const Name result = apply(op, operation, dtype);
  op.give(negated ? op.add("Not", {result}) : result);
}

void eq(const TracedOperation& op) {
  compare(op, "Equal", false);
}

void ne(const TracedOperation& op) {
  compare(op, "Equal", true);
}

void lt(const TracedOperation& op) {
  compare(op, "Less", false);
}

void le(const TracedOperation& op) {
  compare(op, "LessOrEqual", false);
}

void gt(const TracedOperation& op) {
  compare(op, "Greater", false);
}

void ge(const TracedOperation& op) {
  compare(op, "GreaterOrEqual", false);
}

void logical_and(const TracedOperation& op) {
  op.give(apply(op, "And", torch::kBool));
}

void logical_or(const TracedOperation& op) {
  op.give(apply(op, "Or", torch::kBool));
}

void logical_xor(const TracedOperation& op) {
  op.give(apply(op, "Xor", torch::kBool));
}

// The bitwise operations of booleans are the logical ones.
template <Rule rule>
void of_booleans(const TracedOperation& op) {
  if (op.out_dtype() != torch::kBool) op.refuse("of integers has no form in ONNX here");
  rule(op);
}

void logical_not_of(const TracedOperation& op) {
  op.give(op.add("Not", {op.x(0)}));
}

void maximum(const TracedOperation& op) {
  op.give(apply(op, "Max", op.out_dtype()));
}

void minimum(const TracedOperation& op) {
  op.give(apply(op, "Min", op.out_dtype()));
}

void pow(const TracedOperation& op) {
  op.give(apply(op, "Pow", op.out_dtype()));
}

void where(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  op.give(op.add("Where", {op.x_as(0, torch::kBool), op.x_as(1, dtype), op.x_as(2, dtype)}));
}

void masked_fill(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  op.give(op.add("Where", {op.x_as(1, torch::kBool), op.x_as(2, dtype), op.x_as(0, dtype)}));
}

// start + weight * (end - start)
void lerp(const TracedOperation& op) {
  const torch::ScalarType dtype = op.out_dtype();
  const Name start = op.x_as(0, dtype);
  const Name way = op.add("Sub", {op.x_as(1, dtype), start});
  op.give(op.add("Add", {start, op.add("Mul", {op.x_as(2, dtype), way})}));
}

// self + value * tensor1 * tensor2, or / tensor2
void add_product(const TracedOperation& op, const char* operation) {
  const torch::ScalarType dtype = op.out_dtype();
  Name product = op.add(operation, {op.x_as(1, dtype), op.x_as(2, dtype)});
  if (op.number(3) != 1.0) product = op.add("Mul", {product, op.scalar(op.number(3), dtype)});
  op.give(op.add("Add", {op.x_as(0, dtype), product}));
}

void addcmul(const TracedOperation& op) {
  add_product(op, "Mul");
}

void addcdiv(const TracedOperation& op) {
  add_product(op, "Div");
}

}  // namespace

void add_pointwise_rules(Rules& rules) {
  rules.insert({{"aten::add", add},
                {"aten::sub", sub},
                {"aten::rsub", rsub},
                {"aten::mul", mul},
                {"aten::multiply", mul},
                {"aten::div", div},
                {"aten::divide", div},
                {"aten::true_divide", div},
                {"aten::floor_divide", floor_divide},
                {"aten::remainder", remainder},
                {"aten::fmod", fmod},
                {"aten::eq", eq},
                {"aten::ne", ne},
                {"aten::lt", lt},
                {"aten::le", le},
                {"aten::gt", gt},
                {"aten::ge", ge},
                {"aten::logical_and", logical_and},
                {"aten::logical_or", logical_or},
                {"aten::logical_xor", logical_xor},
                {"aten::__and__", of_booleans<logical_and>},
                {"aten::__or__", of_booleans<logical_or>},
                {"aten::bitwise_and", of_booleans<logical_and>},
                {"aten::bitwise_or", of_booleans<logical_or>},
                {"aten::bitwise_xor", of_booleans<logical_xor>},
                {"aten::bitwise_not", of_booleans<logical_not_of>},
                {"aten::maximum", maximum},
                {"aten::minimum", minimum},
                {"aten::pow", pow},
                {"aten::where", where},
                {"aten::masked_fill", masked_fill},
                {"aten::lerp", lerp},
                {"aten::addcmul", addcmul},
                {"aten::addcdiv", addcdiv}});
}

}  // namespace cohort::exports
