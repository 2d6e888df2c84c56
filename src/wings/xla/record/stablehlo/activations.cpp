// Activations and their gradients.
#include <cmath>

#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

Operand level(Lowering& op, double value) {
  return op.text().constant(value, op.out().sizes, op.compute());
}
Operand plus(Lowering& op, const Operand& a, const Operand& b) {
  return op.text().binary("add", a, b);
}
Operand minus(Lowering& op, const Operand& a, const Operand& b) {
  return op.text().binary("subtract", a, b);
}
Operand times(Lowering& op, const Operand& a, const Operand& b) {
  return op.text().binary("multiply", a, b);
}
Operand scaled(Lowering& op, double factor, const Operand& x) {
  return times(op, level(op, factor), x);
}
Operand bounded(Lowering& op, const char* direction, const Operand& x, double bound) {
  return op.text().compare(direction, x, level(op, bound));
}
Operand number_of(Lowering& op, std::size_t i) {
  return op.text().expand(op.number(i, op.compute()), op.out().sizes);
}

void relu(Lowering& op) {
  op.set(0, op.text().binary("maximum", op.operand(0), level(op, 0.0)));
}

void threshold(Lowering& op) {
  const Operand x = op.operand(0);
  op.set(0, op.text().select(op.text().compare("LE", x, number_of(op, 1)), number_of(op, 2), x));
}
void threshold_backward(Lowering& op) {
  const Operand low = op.text().compare("LE", op.operand(1), number_of(op, 2));
  op.set(0, op.text().select(low, level(op, 0.0), op.operand(0)));
}

void tanh_backward(Lowering& op) {
  const Operand y = op.operand(1);
  op.set(0, times(op, op.operand(0), minus(op, level(op, 1.0), times(op, y, y))));
}
void sigmoid_backward(Lowering& op) {
  const Operand y = op.operand(1);
  op.set(0, times(op, op.operand(0), times(op, minus(op, level(op, 1.0), y), y)));
}

void silu(Lowering& op) {
  const Operand x = op.operand(0);
  op.set(0, times(op, x, op.text().unary("logistic", x)));
}
void silu_backward(Lowering& op) {
  const Operand x = op.operand(1);
  const Operand s = op.text().unary("logistic", x);
  const Operand slope = plus(op, level(op, 1.0), times(op, x, minus(op, level(op, 1.0), s)));
  op.set(0, times(op, op.operand(0), times(op, s, slope)));
}

constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kRootTwoOverPi = 0.79788456080286535588;
constexpr double kTanhCubic = 0.044715;

// The distribution function of the normal distribution at x.
Operand normal_cdf(Lowering& op, const Operand& x) {
  const Operand erf = op.text().unary("chlo.erf", scaled(op, kRootHalf, x));
  return scaled(op, 0.5, plus(op, level(op, 1.0), erf));
}
Operand tanh_inner(Lowering& op, const Operand& x) {
  const Operand cube = times(op, times(op, x, x), x);
  return op.text().unary("tanh", scaled(op, kRootTwoOverPi, plus(op, x, scaled(op, kTanhCubic, cube))));
}
bool by_tanh(Lowering& op, std::size_t i) {
  return op.has(i) && op.string(i) == "tanh";
}

void gelu(Lowering& op) {
  const Operand x = op.operand(0);
  if (!by_tanh(op, 1)) return op.set(0, times(op, x, normal_cdf(op, x)));
  op.set(0, times(op, scaled(op, 0.5, x), plus(op, level(op, 1.0), tanh_inner(op, x))));
}
void gelu_backward(Lowering& op) {
  const Operand x = op.operand(1);
  if (!by_tanh(op, 2)) {
    const Operand density =
        scaled(op, kRootTwoOverPi * 0.5, op.text().unary("exponential", scaled(op, -0.5, times(op, x, x))));
    return op.set(0, times(op, op.operand(0), plus(op, normal_cdf(op, x), times(op, x, density))));
  }
  const Operand inner = tanh_inner(op, x);
  const Operand left = scaled(op, 0.5, plus(op, level(op, 1.0), inner));
  const Operand inner_slope =
      scaled(op, kRootTwoOverPi, plus(op, level(op, 1.0), scaled(op, 3.0 * kTanhCubic, times(op, x, x))));
  const Operand right =
      times(op, scaled(op, 0.5, x), times(op, minus(op, level(op, 1.0), times(op, inner, inner)), inner_slope));
  op.set(0, times(op, op.operand(0), plus(op, left, right)));
}

void leaky_relu(Lowering& op) {
  const Operand x = op.operand(0);
  op.set(0, op.text().select(bounded(op, "GT", x, 0.0), x, times(op, number_of(op, 1), x)));
}
void leaky_relu_backward(Lowering& op) {
  const Operand g = op.operand(0);
  op.set(0, op.text().select(bounded(op, "GT", op.operand(1), 0.0), g, times(op, number_of(op, 2), g)));
}

void elu(Lowering& op) {
  const Operand x = op.operand(0);
  const Operand low = times(op, times(op, number_of(op, 1), number_of(op, 2)),
                            op.text().unary("exponential_minus_one", times(op, number_of(op, 3), x)));
  op.set(0, op.text().select(bounded(op, "GT", x, 0.0), times(op, number_of(op, 2), x), low));
}
// Arguments: gradient, alpha, scale, input_scale, is_result, self or result.
void elu_backward(Lowering& op) {
  const Operand g = op.operand(0);
  const Operand x = op.operand(5);
  const Operand coefficient = times(op, number_of(op, 1), number_of(op, 2));
  const Operand factor = times(op, number_of(op, 3), g);
  const Operand low = op.flag(4) ? times(op, factor, plus(op, x, coefficient))
                                 : times(op, times(op, factor, coefficient),
                                         op.text().unary("exponential", times(op, number_of(op, 3), x)));
  op.set(0, op.text().select(bounded(op, "GT", x, 0.0), times(op, number_of(op, 2), g), low));
}

Operand between(Lowering& op, const Operand& x, double low, double high) {
  return op.text().binary("and", bounded(op, "GT", x, low), bounded(op, "LT", x, high));
}
Operand sixth(Lowering& op, const Operand& x) {
  const Operand moved = plus(op, x, level(op, 3.0));
  const Operand low = op.text().binary("maximum", moved, level(op, 0.0));
  return op.text().binary("divide", op.text().binary("minimum", low, level(op, 6.0)), level(op, 6.0));
}
void hardtanh(Lowering& op) {
  const Operand low = op.text().binary("maximum", op.operand(0), number_of(op, 1));
  op.set(0, op.text().binary("minimum", low, number_of(op, 2)));
}
void hardtanh_backward(Lowering& op) {
  const Operand x = op.operand(1);
  const Operand inside = between(op, x, op.real(2), op.real(3));
  op.set(0, op.text().select(inside, op.operand(0), level(op, 0.0)));
}
void hardsigmoid(Lowering& op) {
  op.set(0, sixth(op, op.operand(0)));
}
// LibTorch has the slope in single precision, also for float64.
constexpr double kSixth = 1.0F / 6.0F;
void hardsigmoid_backward(Lowering& op) {
  const Operand inside = between(op, op.operand(1), -3.0, 3.0);
  op.set(0, op.text().select(inside, scaled(op, kSixth, op.operand(0)), level(op, 0.0)));
}
void hardswish(Lowering& op) {
  op.set(0, times(op, op.operand(0), sixth(op, op.operand(0))));
}
void hardswish_backward(Lowering& op) {
  const Operand g = op.operand(0);
  const Operand x = op.operand(1);
  const Operand slope = plus(op, scaled(op, 1.0 / 3.0, x), level(op, 0.5));
  const Operand middle = op.text().select(bounded(op, "LE", x, 3.0), times(op, g, slope), g);
  op.set(0, op.text().select(bounded(op, "LT", x, -3.0), level(op, 0.0), middle));
}

// log(1 + exp(beta * x)) / beta, and x itself above the threshold.
void softplus(Lowering& op) {
  Text& t = op.text();
  const Operand x = op.operand(0);
  const Operand beta = number_of(op, 1);
  const Operand bx = times(op, beta, x);
  const Operand soft = t.binary("divide", t.unary("log_plus_one", t.unary("exponential", bx)), beta);
  op.set(0, t.select(t.compare("GT", bx, number_of(op, 2)), x, soft));
}
void softplus_backward(Lowering& op) {
  Text& t = op.text();
  const Operand g = op.operand(0);
  const Operand bx = times(op, number_of(op, 2), op.operand(1));
  const Operand above = t.compare("GT", bx, number_of(op, 3));
  op.set(0, t.select(above, g, times(op, g, t.unary("logistic", bx))));
}
// min(x, 0) - log1p(exp(-|x|)); the second result is LibTorch's buffer, which only its own backward reads.
Operand sigmoid_tail(Lowering& op, const Operand& x) {
  Text& t = op.text();
  return t.unary("exponential", t.unary("negate", t.unary("abs", x)));
}
void log_sigmoid(Lowering& op) {
  Text& t = op.text();
  const Operand x = op.operand(0);
  const Operand low = t.binary("minimum", x, level(op, 0.0));
  op.set(0, minus(op, low, t.unary("log_plus_one", sigmoid_tail(op, x))));
  if (op.wants(1)) op.set(1, sigmoid_tail(op, x));
}
void log_sigmoid_backward(Lowering& op) {
  const Operand x = op.operand(1);
  op.set(0, times(op, op.operand(0), op.text().unary("logistic", op.text().unary("negate", x))));
}

constexpr OperationInfo kActivations[] = {
    {"relu", relu},
    {"threshold", threshold},
    {"threshold_backward", threshold_backward},
    {"tanh_backward", tanh_backward},
    {"sigmoid_backward", sigmoid_backward},
    {"silu", silu},
    {"silu_backward", silu_backward},
    {"gelu", gelu},
    {"gelu_backward", gelu_backward},
    {"leaky_relu", leaky_relu},
    {"leaky_relu_backward", leaky_relu_backward},
    {"elu", elu},
    {"elu_backward", elu_backward},
    {"hardtanh", hardtanh},
    {"hardtanh_backward", hardtanh_backward},
    {"hardsigmoid", hardsigmoid},
    {"hardsigmoid_backward", hardsigmoid_backward},
    {"hardswish", hardswish},
    {"hardswish_backward", hardswish_backward},
    {"softplus", softplus},
    {"softplus_backward", softplus_backward},
    {"log_sigmoid_forward", log_sigmoid},
    {"log_sigmoid_backward", log_sigmoid_backward},
};

}  // namespace

std::span<const OperationInfo> activation_operations() {
  return kActivations;
}

}  // namespace cohort::record::stablehlo
