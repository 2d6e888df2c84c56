// Element by element: arithmetic, comparisons, activations and their gradients.
#include <cmath>

#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

Operand filled(Lowering& op, double value) {
  return op.text().constant(value, op.out().sizes, op.compute());
}
// The number of argument i, as often as the result has elements.
Operand spread(Lowering& op, std::size_t i) {
  return op.text().expand(op.number(i, op.compute()), op.out().sizes);
}

template <const auto& kName>
void unary(Lowering& op) {
  op.set(0, op.text().unary(kName, op.operand(0)));
}
template <const auto& kName>
void binary(Lowering& op) {
  op.set(0, op.text().binary(kName, op.operand(0), op.operand(1)));
}
template <const auto& kDirection>
void compare(Lowering& op) {
  Text& t = op.text();
  op.set(0, t.compare(kDirection, op.operand(0), op.operand(1)));
}
template <const auto& kName>
void logical(Lowering& op) {
  Text& t = op.text();
  const auto truth = [&](std::size_t i) { return t.expand(t.convert(op.in(i), "i1"), op.out().sizes); };
  op.set(0, t.binary(kName, truth(0), truth(1)));
}

constexpr char kAbs[] = "abs";
constexpr char kNegate[] = "negate";
constexpr char kExponential[] = "exponential";
constexpr char kExpm1[] = "exponential_minus_one";
constexpr char kLog[] = "log";
constexpr char kLog1p[] = "log_plus_one";
constexpr char kSqrt[] = "sqrt";
constexpr char kRsqrt[] = "rsqrt";
constexpr char kTanh[] = "tanh";
constexpr char kLogistic[] = "logistic";
constexpr char kSine[] = "sine";
constexpr char kCosine[] = "cosine";
constexpr char kFloor[] = "floor";
constexpr char kCeil[] = "ceil";
constexpr char kRound[] = "round_nearest_even";
constexpr char kSign[] = "sign";
constexpr char kErf[] = "chlo.erf";
constexpr char kErfinv[] = "chlo.erf_inv";
constexpr char kMultiply[] = "multiply";
constexpr char kMaximum[] = "maximum";
constexpr char kMinimum[] = "minimum";
constexpr char kAtan2[] = "atan2";
constexpr char kAnd[] = "and";
constexpr char kOr[] = "or";
constexpr char kXor[] = "xor";
constexpr char kEq[] = "EQ";
constexpr char kNe[] = "NE";
constexpr char kLt[] = "LT";
constexpr char kLe[] = "LE";
constexpr char kGt[] = "GT";
constexpr char kGe[] = "GE";

// self +- alpha * other.
void add_scaled(Lowering& op, const char* name) {
  Operand other = op.operand(1);
  if (!op.is_number(2, 1.0)) other = op.text().binary("multiply", other, spread(op, 2));
  if (op.compute() == "i1") return op.set(0, op.text().binary("or", op.operand(0), other));
  op.set(0, op.text().binary(name, op.operand(0), other));
}
void add(Lowering& op) {
  add_scaled(op, "add");
}
void sub(Lowering& op) {
  add_scaled(op, "subtract");
}
// alpha * self + other: other - alpha * self.
void rsub(Lowering& op) {
  Operand self = op.operand(0);
  if (!op.is_number(2, 1.0)) self = op.text().binary("multiply", self, spread(op, 2));
  op.set(0, op.text().binary("subtract", op.operand(1), self));
}
void mul(Lowering& op) {
  op.set(0, op.text().binary(op.compute() == "i1" ? "and" : "multiply", op.operand(0), op.operand(1)));
}

Operand floor_divided(Lowering& op, const Operand& a, const Operand& b) {
  Text& t = op.text();
  const Operand quotient = t.binary("divide", a, b);
  if (is_float(a.element)) return t.unary("floor", quotient);
  // Integers are cut towards zero: one less where the signs differ and something is left.
  const Operand zero = t.integer(0, a.sizes, a.element);
  const Operand rest = t.binary("remainder", a, b);
  const Operand differ = t.compare("NE", t.compare("LT", rest, zero), t.compare("LT", b, zero));
  const Operand low = t.binary("and", t.compare("NE", rest, zero), differ);
  return t.select(low, t.binary("subtract", quotient, t.integer(1, a.sizes, a.element)), quotient);
}

void divide_with_mode(Lowering& op, const std::string& mode) {
  Text& t = op.text();
  if (mode == "floor") return op.set(0, floor_divided(op, op.operand(0), op.operand(1)));
  Operand quotient = t.binary("divide", op.operand(0), op.operand(1));
  if (mode == "trunc" && is_float(quotient.element)) {
    quotient = t.binary("multiply", t.unary("sign", quotient), t.unary("floor", t.unary("abs", quotient)));
  }
  op.set(0, quotient);
}
void divide(Lowering& op) {
  divide_with_mode(op, "");
}
void divide_by_mode(Lowering& op) {
  divide_with_mode(op, op.has(2) ? op.string(2) : "");
}
void floor_divide(Lowering& op) {
  divide_with_mode(op, "floor");
}
// The rest with the divisor's sign.
void remainder(Lowering& op) {
  Text& t = op.text();
  const Operand a = op.operand(0);
  const Operand b = op.operand(1);
  const Operand rest = t.binary("remainder", a, b);
  const Operand zero = t.constant(0.0, a.sizes, a.element);
  const Operand differ = t.compare("NE", t.compare("LT", rest, zero), t.compare("LT", b, zero));
  const Operand moves = t.binary("and", t.compare("NE", rest, zero), differ);
  op.set(0, t.select(moves, t.binary("add", rest, b), rest));
}
void fmod(Lowering& op) {
  op.set(0, op.text().binary("remainder", op.operand(0), op.operand(1)));
}

// self + value * a * b, and self + value * a / b.
void add_product(Lowering& op, const char* combine) {
  Text& t = op.text();
  Operand term = op.operand(1);
  if (!op.is_number(3, 1.0)) term = t.binary("multiply", spread(op, 3), term);
  op.set(0, t.binary("add", op.operand(0), t.binary(combine, term, op.operand(2))));
}
void addcmul(Lowering& op) {
  add_product(op, "multiply");
}
void addcdiv(Lowering& op) {
  add_product(op, "divide");
}

void lerp(Lowering& op) {
  Text& t = op.text();
  const Operand difference = t.binary("subtract", op.operand(1), op.operand(0));
  op.set(0, t.binary("add", op.operand(0), t.binary("multiply", op.operand(2), difference)));
}

void pow(Lowering& op) {
  Text& t = op.text();
  const Operand base = op.operand(0);
  if (op.is_number(1, 2.0)) return op.set(0, t.binary("multiply", base, base));
  if (op.is_number(1, 1.0)) return op.set(0, base);
  op.set(0, t.binary("power", base, op.operand(1)));
}

// x * log(y), and 0 where x is 0, unless y is no number.
void xlogy(Lowering& op) {
  Text& t = op.text();
  const Operand x = op.operand(0);
  const Operand y = op.operand(1);
  const Operand zero = filled(op, 0.0);
  const Operand none = t.binary("and", t.compare("EQ", x, zero), t.compare("EQ", y, y));
  op.set(0, t.select(none, zero, t.binary("multiply", x, t.unary("log", y))));
}
void reciprocal(Lowering& op) {
  op.set(0, op.text().binary("divide", filled(op, 1.0), op.operand(0)));
}
void square(Lowering& op) {
  op.set(0, op.text().binary("multiply", op.operand(0), op.operand(0)));
}
void log_by(Lowering& op, double base) {
  op.set(0, op.text().binary("divide", op.text().unary("log", op.operand(0)), filled(op, std::log(base))));
}
void log2(Lowering& op) {
  log_by(op, 2.0);
}
void log10(Lowering& op) {
  log_by(op, 10.0);
}
void trunc(Lowering& op) {
  Text& t = op.text();
  const Operand x = op.operand(0);
  if (!is_float(x.element)) return op.set(0, x);
  op.set(0, t.binary("multiply", t.unary("sign", x), t.unary("floor", t.unary("abs", x))));
}
// Integers are whole already.
template <const auto& kName>
void rounding(Lowering& op) {
  const Operand x = op.operand(0);
  op.set(0, is_float(x.element) ? op.text().unary(kName, x) : x);
}
void logical_not(Lowering& op) {
  op.set(0, op.text().unary("not", op.text().convert(op.in(0), "i1")));
}
void bitwise_not(Lowering& op) {
  op.set(0, op.text().unary("not", op.operand(0)));
}
void is_nan(Lowering& op) {
  const Operand x = op.in(0);
  op.set(0, op.text().compare("NE", x, x));
}
void is_finite_op(Lowering& op) {
  const Operand x = op.in(0);
  op.set(0, is_float(x.element) ? op.text().unary("is_finite", x) : op.text().constant(1.0, x.sizes, "i1"));
}

void where(Lowering& op) {
  Text& t = op.text();
  const Operand condition = t.expand(t.convert(op.in(0), "i1"), op.out().sizes);
  op.set(0, t.select(condition, op.operand(1), op.operand(2)));
}
// The value stands in place of the elements where the mask holds.
void masked_fill(Lowering& op) {
  Text& t = op.text();
  op.set(0, t.select(t.expand(t.convert(op.in(1), "i1"), op.out().sizes), op.operand(2), op.operand(0)));
}

void clamp_between(Lowering& op, bool lower, std::size_t low, std::size_t high) {
  Text& t = op.text();
  Operand x = op.operand(0);
  if (lower && op.has(low)) x = t.binary("maximum", x, op.operand(low));
  if (high != 0 && op.has(high)) x = t.binary("minimum", x, op.operand(high));
  op.set(0, x);
}
void clamp(Lowering& op) {
  clamp_between(op, true, 1, 2);
}
void clamp_min(Lowering& op) {
  clamp_between(op, true, 1, 0);
}
void clamp_max(Lowering& op) {
  clamp_between(op, false, 0, 1);
}

void copy(Lowering& op) {
  Text& t = op.text();
  op.set(0, t.expand(t.convert(op.in(0), op.element()), op.out().sizes));
}
void full(Lowering& op) {
  op.set(0, op.text().expand(op.number(0, op.element()), op.out().sizes));
}
void arange(Lowering& op) {
  Text& t = op.text();
  const std::string e = op.compute();
  const Operand steps = t.binary("multiply", t.iota(0, op.out().sizes, e), t.expand(op.number(1, e), op.out().sizes));
  op.set(0, t.binary("add", t.expand(op.number(0, e), op.out().sizes), steps));
}
void all_reduce(Lowering& op) {
  op.set(0, op.replicas() == 1 ? op.in(0) : op.text().all_reduce(op.in(0), op.replicas()));
}

constexpr uint32_t bit(int i) {
  return 1U << i;
}

constexpr OperationInfo kElementwise[] = {
    {"abs", unary<kAbs>},
    {"neg", unary<kNegate>},
    {"exp", unary<kExponential>},
    {"expm1", unary<kExpm1>},
    {"log", unary<kLog>},
    {"log1p", unary<kLog1p>},
    {"log2", log2},
    {"log10", log10},
    {"sqrt", unary<kSqrt>, 0, false, "sqrt.out"},
    {"rsqrt", unary<kRsqrt>},
    {"tanh", unary<kTanh>},
    {"sigmoid", unary<kLogistic>},
    {"sin", unary<kSine>},
    {"cos", unary<kCosine>},
    {"erf", unary<kErf>},
    {"erfinv", unary<kErfinv>},
    {"floor", rounding<kFloor>},
    {"ceil", rounding<kCeil>},
    {"round", rounding<kRound>},
    {"trunc", trunc},
    {"sign", unary<kSign>},
    {"sgn", unary<kSign>},
    {"reciprocal", reciprocal},
    {"square", square},
    {"logical_not", logical_not, 0, true},
    {"bitwise_not", bitwise_not},
    {"isnan", is_nan, 0, true},
    {"isfinite", is_finite_op, 0, true},
    {"add.Tensor", add, bit(1) | bit(2), false, "add.out"},
    {"add.Scalar", add, bit(1) | bit(2)},
    {"sub.Tensor", sub, bit(1) | bit(2), false, "sub.out"},
    {"sub.Scalar", sub, bit(1) | bit(2)},
    {"rsub.Tensor", rsub, bit(1) | bit(2)},
    {"rsub.Scalar", rsub, bit(1) | bit(2)},
    {"mul.Tensor", mul, bit(1), false, "mul.out"},
    {"mul.Scalar", mul, bit(1)},
    {"div.Tensor", divide, bit(1), false, "div.out"},
    {"div.Scalar", divide, bit(1)},
    {"div.Tensor_mode", divide_by_mode, bit(1)},
    {"div.Scalar_mode", divide_by_mode, bit(1)},
    {"floor_divide", floor_divide, bit(1)},
    {"remainder.Tensor", remainder, bit(1)},
    {"remainder.Scalar", remainder, bit(1)},
    {"fmod.Tensor", fmod, bit(1)},
    {"fmod.Scalar", fmod, bit(1)},
    {"addcmul", addcmul, bit(3)},
    {"addcdiv", addcdiv, bit(3)},
    {"lerp.Scalar", lerp, bit(2)},
    {"lerp.Tensor", lerp},
    {"pow.Tensor_Scalar", pow, bit(1)},
    {"pow.Tensor_Tensor", pow},
    {"pow.Scalar", pow, bit(0)},
    {"xlogy.Tensor", xlogy},
    {"atan2", binary<kAtan2>},
    {"maximum", binary<kMaximum>, 0, false, "maximum.out"},
    {"minimum", binary<kMinimum>, 0, false, "minimum.out"},
    {"bitwise_and.Tensor", binary<kAnd>},
    {"bitwise_or.Tensor", binary<kOr>},
    {"bitwise_xor.Tensor", binary<kXor>},
    {"bitwise_and.Scalar", binary<kAnd>},
    {"bitwise_or.Scalar", binary<kOr>},
    {"bitwise_xor.Scalar", binary<kXor>},
    {"logical_and", logical<kAnd>, 0, true},
    {"logical_or", logical<kOr>, 0, true},
    {"logical_xor", logical<kXor>, 0, true},
    {"eq.Tensor", compare<kEq>, 0, true},
    {"eq.Scalar", compare<kEq>, 0, true},
    {"ne.Tensor", compare<kNe>, 0, true},
    {"ne.Scalar", compare<kNe>, 0, true},
    {"lt.Tensor", compare<kLt>, 0, true},
    {"lt.Scalar", compare<kLt>, 0, true},
    {"le.Tensor", compare<kLe>, 0, true},
    {"le.Scalar", compare<kLe>, 0, true},
    {"gt.Tensor", compare<kGt>, 0, true},
    {"gt.Scalar", compare<kGt>, 0, true},
    {"ge.Tensor", compare<kGe>, 0, true},
    {"ge.Scalar", compare<kGe>, 0, true},
    {"where.self", where},
    {"masked_fill.Scalar", masked_fill, bit(2)},
    {"masked_fill.Tensor", masked_fill},
    {"clamp", clamp, bit(1) | bit(2)},
    {"clamp.Tensor", clamp},
    {"clamp_min", clamp_min, bit(1)},
    {"clamp_min.Tensor", clamp_min},
    {"clamp_max", clamp_max, bit(1)},
    {"clamp_max.Tensor", clamp_max},
    {"cohort::copy", copy, 0, false, nullptr, true},
    {"full", full, 0, false, nullptr, true},
    {"arange", arange, 0, false, nullptr, true},
    {"cohort::all_reduce", all_reduce, 0, false, nullptr, true},
};

}  // namespace

std::span<const OperationInfo> elementwise_operations() {
  return kElementwise;
}

}  // namespace cohort::record::stablehlo
