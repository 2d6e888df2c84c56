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

void mish(Lowering& op) {
  const Operand x = op.operand(0);
  const Operand soft = op.text().unary("log_plus_one", op.text().unary("exponential", x));
  op.set(0, times(op, x, op.text().unary("tanh", soft)));
}

// Returns whether x is between the negative number and the number, which are argument i.
Operand within_number(Lowering& op, const Operand& x, std::size_t i) {
  return op.text().compare("LE", op.text().unary("abs", x), number_of(op, i));
}
void hardshrink(Lowering& op) {
  const Operand x = op.operand(0);
  op.set(0, op.text().select(within_number(op, x, 1), level(op, 0.0), x));
}
void shrink_backward(Lowering& op) {
  op.set(0, op.text().select(within_number(op, op.operand(1), 2), level(op, 0.0), op.operand(0)));
}
void softshrink(Lowering& op) {
  const Operand x = op.operand(0);
  const Operand lost = times(op, op.text().unary("sign", x), number_of(op, 1));
  op.set(0, op.text().select(within_number(op, x, 1), level(op, 0.0), minus(op, x, lost)));
}

// Returns the slopes of prelu, which has one for each channel or one for all, in the sizes of x.
Operand slopes(Lowering& op, const Operand& x, std::size_t i) {
  const Operand own = op.text().convert(op.in(i), op.compute());
  Dims sizes(x.sizes.size(), 1);
  if (x.rank() > 1) sizes[1] = numel(own.sizes);
  return op.text().expand(op.text().reshape(own, sizes), x.sizes);
}
void prelu(Lowering& op) {
  const Operand x = op.operand(0);
  op.set(0, op.text().select(bounded(op, "GT", x, 0.0), x, times(op, slopes(op, x, 1), x)));
}
// Arguments: the gradient, x, the slopes. Results: the gradients of both.
void prelu_backward(Lowering& op) {
  const Operand g = op.operand(0);
  const Operand x = op.operand(1);
  const Operand above = bounded(op, "GT", x, 0.0);
  if (op.wants(0)) op.set(0, op.text().select(above, g, times(op, slopes(op, x, 2), g)));
  if (!op.wants(1)) return;
  const Operand each = op.text().select(above, level(op, 0.0), times(op, x, g));
  const bool by_channel = x.rank() > 1 && numel(op.out(1).sizes) > 1;
  const Operand sum = op.text().reduce("add", each, by_channel ? other_dims(x.rank(), {1}) : all_dims(x.rank()), 0.0);
  op.set(1, op.text().reshape(sum, op.out(1).sizes));
}

// Returns the first or the second half of x in a dimension.
Operand half_of(Lowering& op, const Operand& x, int64_t dim, bool second) {
  const auto d = static_cast<std::size_t>(dim);
  Dims begin(x.sizes.size(), 0), end = x.sizes;
  (second ? begin : end)[d] = x.sizes[d] / 2;
  return op.text().slice(x, begin, end, Dims(x.sizes.size(), 1));
}
void glu(Lowering& op) {
  const Operand x = op.text().convert(op.in(0), op.compute());
  const int64_t dim = op.dim(1, x.rank());
  op.set(0, times(op, half_of(op, x, dim, false), op.text().unary("logistic", half_of(op, x, dim, true))));
}
// Arguments: the gradient, x, the dimension.
void glu_backward(Lowering& op) {
  Text& t = op.text();
  const Operand g = t.convert(op.in(0), op.compute());
  const Operand x = t.convert(op.in(1), op.compute());
  const int64_t dim = op.dim(2, x.rank());
  const Operand gate = t.unary("logistic", half_of(op, x, dim, true));
  const Operand through = times(op, g, gate);
  const Operand slope = times(op, half_of(op, x, dim, false), minus(op, t.constant(1.0, g.sizes, g.element), gate));
  op.set(0, t.concatenate({through, times(op, through, slope)}, dim));
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
    {"mish", mish},
    {"hardshrink", hardshrink},
    {"hardshrink_backward", shrink_backward},
    {"softshrink", softshrink},
    {"softshrink_backward", shrink_backward},
    {"glu", glu},
    {"glu_backward", glu_backward},
    {"prelu", prelu},
    {"prelu_backward", prelu_backward},
};

}  // namespace

std::span<const OperationInfo> activation_operations() {
  return kActivations;
}

}  // namespace cohort::record::stablehlo
