// Random numbers by rng_bit_generator with THREE_FRY, the algorithm that gives the same bits on every platform. The
// state is the same in all replicas; each mixes its number into the key, so their streams differ.
#include <cmath>

#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

// An odd constant by which the numbers of replicas are spread over the keys (2^64 divided by the golden ratio).
constexpr int64_t kSpread = static_cast<int64_t>(0x9E3779B97F4A7C15ULL);

// Draws bits of the element (ui32 or ui64) and sets the state behind them, which is result 1.
Operand bits(Lowering& op, const Dims& sizes, const std::string& element) {
  Text& t = op.text();
  const Operand state = t.bitcast(op.in(0), "ui64");
  const Operand key = t.slice(state, {0}, {1}, {1});
  const Operand counter = t.slice(state, {1}, {2}, {1});
  Operand own = state;
  if (op.replicas() > 1) {
    const Operand replica = t.convert(t.emit("stablehlo.replica_id : tensor<ui32>", {}, "ui32"), "i64");
    const Operand moved = t.bitcast(t.binary("multiply", replica, t.integer(kSpread, {}, "i64")), "ui64");
    own = t.concatenate({t.binary("xor", key, t.reshape(moved, {1})), counter}, 0);
  }
  const auto results = t.emit_several("stablehlo.rng_bit_generator " + own.name +
                                          ", algorithm = THREE_FRY : (tensor<2xui64>) -> "
                                          "(tensor<2xui64>, " +
                                          type_text(sizes, element) + ")",
                                      {{"", {2}, "ui64"}, {"", sizes, element}});
  const Operand after = t.concatenate({key, t.slice(results[0], {1}, {2}, {1})}, 0);
  op.set(1, t.bitcast(after, "i64"));
  return results[1];
}

// Uniform numbers in [0, 1): the mantissa of a number in [1, 2) is random.
Operand unit(Lowering& op) {
  Text& t = op.text();
  const Dims& sizes = op.out().sizes;
  const bool wide = op.compute() == "f64";
  const std::string e = wide ? "f64" : "f32";
  const std::string word = wide ? "ui64" : "ui32";
  const Operand drawn = bits(op, sizes, word);
  const Operand shifted = t.binary("shift_right_logical", drawn, t.integer(wide ? 12 : 9, sizes, word));
  const Operand one = t.integer(wide ? 0x3FF0000000000000 : 0x3F800000, sizes, word);
  return t.binary("subtract", t.bitcast(t.binary("or", shifted, one), e), t.constant(1.0, sizes, e));
}

Operand level(Lowering& op, std::size_t i, const Operand& like) {
  return op.text().constant(op.real(i), like.sizes, like.element);
}

// Arguments: state, from, to.
void uniform(Lowering& op) {
  Text& t = op.text();
  const Operand u = unit(op);
  const Operand range = t.binary("subtract", level(op, 2, u), level(op, 1, u));
  op.set(0, t.binary("add", level(op, 1, u), t.binary("multiply", u, range)));
}

// Arguments: state, mean, deviation. The inverse of the distribution function, of a number within (-1, 1).
void normal(Lowering& op) {
  Text& t = op.text();
  const Operand u = unit(op);
  const double lowest =
      u.element == "f64" ? std::nextafter(-1.0, 0.0) : static_cast<double>(std::nextafter(-1.0F, 0.0F));
  const auto constant = [&](double value) { return t.constant(value, u.sizes, u.element); };
  const Operand spread = t.binary("add", t.binary("multiply", u, constant(2.0)), constant(-1.0));
  const Operand inside = t.binary("maximum", spread, constant(lowest));
  const Operand z = t.binary("multiply", constant(std::sqrt(2.0)), t.unary("chlo.erf_inv", inside));
  op.set(0, t.binary("add", level(op, 1, u), t.binary("multiply", z, level(op, 2, u))));
}

// Arguments: state, the probability of a one.
void bernoulli(Lowering& op) {
  Text& t = op.text();
  const Operand u = unit(op);
  op.set(0, t.compare("LT", u, level(op, 1, u)));
}
void bernoulli_by_tensor(Lowering& op) {
  Text& t = op.text();
  const Operand u = unit(op);
  op.set(0, t.compare("LT", u, t.expand(t.convert(op.in(1), u.element), u.sizes)));
}

// Arguments: state, from, to (beyond the last).
void random_integers(Lowering& op) {
  Text& t = op.text();
  const Dims& sizes = op.out().sizes;
  const int64_t from = op.integer(1);
  const Operand range = t.integer(op.integer(2) - from, sizes, "ui64");
  const Operand rest = t.bitcast(t.binary("remainder", bits(op, sizes, "ui64"), range), "i64");
  op.set(0, t.binary("add", rest, t.integer(from, sizes, "i64")));
}

constexpr OperationInfo kRandom[] = {
    {"uniform", uniform, 0, false, nullptr, true},
    {"normal", normal, 0, false, nullptr, true},
    {"bernoulli.p", bernoulli, 0, false, nullptr, true},
    {"bernoulli.Tensor", bernoulli_by_tensor, 0, false, nullptr, true},
    {"random.from", random_integers, 0, false, nullptr, true},
};

}  // namespace

std::span<const OperationInfo> random_operations() {
  return kRandom;
}

}  // namespace cohort::record::stablehlo
