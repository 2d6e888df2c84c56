// Normalization and softmax, with their gradients. Half precision is normalized in single precision.
#include <cmath>

#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

// A normalization of x over some dimensions, with helpers for what has the other ones.
struct Normal {
  Text& t;
  Operand x;
  Dims dims;
  Dims kept;

  Operand spread(const Operand& v) const { return t.broadcast(v, x.sizes, kept); }
  Operand sum(const Operand& v) const { return t.reduce("add", v, dims, 0.0); }
  Operand level(double value, const Operand& like) const { return t.constant(value, like.sizes, like.element); }
  double count() const {
    double n = 1.0;
    for (const int64_t d : dims) n *= static_cast<double>(x.size(d));
    return n;
  }
  Operand mean(const Operand& v) const {
    const Operand s = sum(v);
    return t.binary("divide", s, level(count(), s));
  }
};

Normal over(Lowering& op, const Operand& x, const Dims& dims) {
  return {op.text(), op.text().convert(x, op.compute()), dims, other_dims(x.rank(), dims)};
}

Operand inverse_deviation(const Normal& n, const Operand& variance, const Operand& eps) {
  return n.t.unary("rsqrt", n.t.binary("add", variance, n.t.expand(eps, variance.sizes)));
}

// Moves a running statistic by the momentum.
void move_running(Lowering& op, std::size_t k, std::size_t running, const Operand& now) {
  Text& t = op.text();
  const Operand before = t.convert(op.in(running), now.element);
  const Operand momentum = t.expand(op.number(6, now.element), now.sizes);
  const Operand rest = t.binary("subtract", t.constant(1.0, now.sizes, now.element), momentum);
  op.set(k, t.binary("add", t.binary("multiply", momentum, now), t.binary("multiply", rest, before)));
}

Operand scale_and_shift(Lowering& op, const Normal& n, Operand y, std::size_t weight, std::size_t bias) {
  const auto parameter = [&](std::size_t i) { return n.t.broadcast(n.t.convert(op.in(i), y.element), y.sizes, {1}); };
  if (op.has(weight)) y = n.t.binary("multiply", y, parameter(weight));
  if (op.has(bias)) y = n.t.binary("add", y, parameter(bias));
  return y;
}

// Arguments: input, weight, bias, running mean, running variance, training, momentum, eps.
void batch_norm(Lowering& op) {
  Text& t = op.text();
  const Operand raw = op.in(0);
  const Normal n = over(op, raw, other_dims(raw.rank(), {1}));
  const bool training = op.flag(5);
  const Operand eps = op.number(7, n.x.element);
  const Operand mean = training ? n.mean(n.x) : t.convert(op.in(3), n.x.element);
  const Operand centered = t.binary("subtract", n.x, n.spread(mean));
  const Operand variance =
      training ? n.mean(t.binary("multiply", centered, centered)) : t.convert(op.in(4), n.x.element);
  const Operand inverse = inverse_deviation(n, variance, eps);
  op.set(0, scale_and_shift(op, n, t.binary("multiply", centered, n.spread(inverse)), 1, 2));
  if (!training) {
    for (const std::size_t k : {1, 2}) op.set(k, t.constant(0.0, op.out(k).sizes, op.element(k)));
    return;
  }
  op.set(1, mean);
  op.set(2, inverse);
  if (op.out_count() < 5) return;
  move_running(op, 3, 3, mean);
  const double count = n.count();
  const Operand unbiased = t.binary("multiply", variance, n.level(count / std::max(count - 1.0, 1.0), variance));
  move_running(op, 4, 4, unbiased);
}

// Arguments: gradient, input, weight, running mean, running variance, saved mean, saved inverse deviation, training,
// eps.
void batch_norm_backward(Lowering& op) {
  Text& t = op.text();
  const Operand raw = op.in(1);
  const std::string e = widened(raw.element);
  const Dims dims = other_dims(raw.rank(), {1});
  const Normal n{t, t.convert(raw, e), dims, {1}};
  const Operand g = t.convert(op.in(0), e);
  const bool training = op.flag(7);
  const Operand mean = t.convert(op.in(training ? 5 : 3), e);
  const Operand inverse =
      training ? t.convert(op.in(6), e) : inverse_deviation(n, t.convert(op.in(4), e), op.number(8, e));
  const Operand normal = t.binary("multiply", t.binary("subtract", n.x, n.spread(mean)), n.spread(inverse));
  const Operand sum_g = n.sum(g);
  const Operand sum_gn = n.sum(t.binary("multiply", g, normal));
  if (op.wants(0)) {
    Operand scale = inverse;
    if (op.has(2)) scale = t.binary("multiply", scale, t.convert(op.in(2), e));
    Operand inner = g;
    if (training) {
      const Operand count = n.level(n.count(), sum_g);
      inner = t.binary("subtract", inner, n.spread(t.binary("divide", sum_g, count)));
      inner = t.binary("subtract", inner, t.binary("multiply", normal, n.spread(t.binary("divide", sum_gn, count))));
    }
    op.set(0, t.binary("multiply", inner, n.spread(scale)));
  }
  if (op.wants(1)) op.set(1, sum_gn);
  if (op.wants(2)) op.set(2, sum_g);
}

Dims last_dims(int64_t rank, std::size_t count) {
  Dims dims;
  for (int64_t d = rank - static_cast<int64_t>(count); d < rank; ++d) dims.push_back(d);
  return dims;
}

// Arguments: input, normalized_shape, weight, bias, eps. The statistics keep the normalized dimensions with size 1.
void layer_norm(Lowering& op) {
  Text& t = op.text();
  const Operand raw = op.in(0);
  const Normal n = over(op, raw, last_dims(raw.rank(), op.ints(1).size()));
  const Operand mean = n.mean(n.x);
  const Operand centered = t.binary("subtract", n.x, n.spread(mean));
  const Operand inverse =
      inverse_deviation(n, n.mean(t.binary("multiply", centered, centered)), op.number(4, n.x.element));
  Operand y = t.binary("multiply", centered, n.spread(inverse));
  const auto parameter = [&](std::size_t i) { return t.expand(t.convert(op.in(i), y.element), y.sizes); };
  if (op.has(2)) y = t.binary("multiply", y, parameter(2));
  if (op.has(3)) y = t.binary("add", y, parameter(3));
  op.set(0, y);
  op.set(1, t.reshape(mean, op.out(1).sizes));
  op.set(2, t.reshape(inverse, op.out(2).sizes));
}

// Arguments: gradient, input, normalized_shape, mean, inverse deviation, weight, bias, which results are wanted.
void layer_norm_backward(Lowering& op) {
  Text& t = op.text();
  const Operand raw = op.in(1);
  const std::string e = widened(raw.element);
  const Dims dims = last_dims(raw.rank(), op.ints(2).size());
  const Normal n{t, t.convert(raw, e), dims, other_dims(raw.rank(), dims)};
  Dims outer;
  for (const int64_t d : n.kept) outer.push_back(raw.size(d));
  const Operand g = t.convert(op.in(0), e);
  const auto statistic = [&](std::size_t i) { return n.spread(t.reshape(t.convert(op.in(i), e), outer)); };
  const Operand inverse = statistic(4);
  const Operand normal = t.binary("multiply", t.binary("subtract", n.x, statistic(3)), inverse);
  if (op.wants(0)) {
    const Operand scaled = op.has(5) ? t.binary("multiply", g, t.expand(t.convert(op.in(5), e), g.sizes)) : g;
    const Operand first = t.binary("subtract", scaled, n.spread(n.mean(scaled)));
    const Operand second = t.binary("multiply", normal, n.spread(n.mean(t.binary("multiply", scaled, normal))));
    op.set(0, t.binary("multiply", inverse, t.binary("subtract", first, second)));
  }
  if (op.wants(1)) op.set(1, t.reduce("add", t.binary("multiply", g, normal), n.kept, 0.0));
  if (op.wants(2)) op.set(2, t.reduce("add", g, n.kept, 0.0));
}

// Arguments: gradient, input, mean, inverse deviation (both [N, groups]), weight, N, C, elements, groups, which are
// wanted.
void group_norm_backward(Lowering& op) {
  Text& t = op.text();
  const Operand raw = op.in(1);
  const std::string e = widened(raw.element);
  const int64_t groups = op.integer(8);
  const Dims split{raw.size(0), groups, raw.size(1) / groups, op.integer(7)};
  const Normal n{t, t.reshape(t.convert(raw, e), split), {2, 3}, {0, 1}};
  const Operand g = t.reshape(t.convert(op.in(0), e), split);
  const Operand inverse = n.spread(t.convert(op.in(3), e));
  const Operand normal = t.binary("multiply", t.binary("subtract", n.x, n.spread(t.convert(op.in(2), e))), inverse);
  if (op.wants(0)) {
    Operand scaled = g;
    if (op.has(4)) {
      const Operand weight = t.reshape(t.convert(op.in(4), e), {split[1], split[2]});
      scaled = t.binary("multiply", g, t.broadcast(weight, split, {1, 2}));
    }
    const Operand first = t.binary("subtract", scaled, n.spread(n.mean(scaled)));
    const Operand second = t.binary("multiply", normal, n.spread(n.mean(t.binary("multiply", scaled, normal))));
    op.set(0, t.reshape(t.binary("multiply", inverse, t.binary("subtract", first, second)), raw.sizes));
  }
  const auto by_channel = [&](const Operand& x) { return t.reshape(t.reduce("add", x, {0, 3}, 0.0), {raw.size(1)}); };
  if (op.wants(1)) op.set(1, by_channel(t.binary("multiply", g, normal)));
  if (op.wants(2)) op.set(2, by_channel(g));
}

void softmax_of(Lowering& op, bool logarithm) {
  Text& t = op.text();
  const Operand raw = op.in(0);
  const Normal n = over(op, raw, raw.rank() == 0 ? Dims{} : Dims{op.dim(1, raw.rank())});
  if (raw.rank() == 0) return op.set(0, n.level(logarithm ? 0.0 : 1.0, n.x));
  const Operand moved = t.binary("subtract", n.x, n.spread(t.reduce("maximum", n.x, n.dims, -INFINITY)));
  const Operand e = t.unary("exponential", moved);
  const Operand sum = n.sum(e);
  op.set(0,
         logarithm ? t.binary("subtract", moved, n.spread(t.unary("log", sum))) : t.binary("divide", e, n.spread(sum)));
}
void softmax(Lowering& op) {
  softmax_of(op, false);
}
void log_softmax(Lowering& op) {
  softmax_of(op, true);
}

// Arguments: gradient, result, dim.
void softmax_gradient(Lowering& op, bool logarithm) {
  Text& t = op.text();
  const Operand y = op.in(1);
  const Normal n = over(op, y, y.rank() == 0 ? Dims{} : Dims{op.dim(2, y.rank())});
  const Operand g = t.convert(op.in(0), n.x.element);
  if (logarithm) {
    return op.set(0, t.binary("subtract", g, t.binary("multiply", t.unary("exponential", n.x), n.spread(n.sum(g)))));
  }
  const Operand product = t.binary("multiply", g, n.x);
  op.set(0, t.binary("subtract", product, t.binary("multiply", n.x, n.spread(n.sum(product)))));
}
void softmax_backward(Lowering& op) {
  softmax_gradient(op, false);
}
void log_softmax_backward(Lowering& op) {
  softmax_gradient(op, true);
}

constexpr OperationInfo kNormalizations[] = {
    {"native_batch_norm", batch_norm, 0, false, nullptr, true},
    {"native_batch_norm_backward", batch_norm_backward},
    {"native_layer_norm", layer_norm},
    {"native_layer_norm_backward", layer_norm_backward},
    {"native_group_norm_backward", group_norm_backward},
    {"_softmax", softmax},
    {"_log_softmax", log_softmax},
    {"_softmax_backward_data", softmax_backward},
    {"_log_softmax_backward_data", log_softmax_backward},
};

}  // namespace

std::span<const OperationInfo> normalization_operations() {
  return kNormalizations;
}

}  // namespace cohort::record::stablehlo
