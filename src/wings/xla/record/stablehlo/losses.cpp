// Losses that LibTorch has as operations of their own, with their gradients. A reduction is 0 (none), 1 (mean) or 2
// (sum).
#include <cmath>

#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

constexpr int64_t kMean = 1;

// What the targets say of a prediction [n, classes, ...]: for each class whether it is the target, and its weight.
struct Targets {
  Operand hit;      // i1, the sizes of the prediction
  Operand weights;  // the weight of each target, the sizes of the prediction, zero where it is not one
};

// The prediction may lack the batch. `self`, `target`, `weight` and `ignore_index` are arguments.
Targets targets_of(Lowering& op, const Operand& self, std::size_t target, std::size_t weight, std::size_t ignore) {
  Text& t = op.text();
  const int64_t classes = self.rank() == 1 ? 0 : 1;
  const Operand index = t.convert(op.in(target), "i64");
  const Operand wanted = t.broadcast(index, self.sizes, other_dims(self.rank(), {classes}));
  Operand hit = t.compare("EQ", t.iota(classes, self.sizes, "i64"), wanted);
  const Operand ignored = t.integer(op.integer(ignore), self.sizes, "i64");
  hit = t.binary("and", hit, t.compare("NE", wanted, ignored));
  Operand weights = t.constant(1.0, self.sizes, self.element);
  if (op.has(weight)) weights = t.broadcast(t.convert(op.in(weight), self.element), self.sizes, {classes});
  return {hit, t.select(hit, weights, t.constant(0.0, self.sizes, self.element))};
}

// Arguments: self, target, weight, reduction, ignore_index. Results: the loss, and the sum of the weights.
void nll_loss(Lowering& op) {
  Text& t = op.text();
  const Operand self = t.convert(op.in(0), op.compute());
  const Targets targets = targets_of(op, self, 1, 2, 4);
  const int64_t classes = self.rank() == 1 ? 0 : 1;
  const Operand zero = t.constant(0.0, self.sizes, self.element);
  const Operand losses = t.unary("negate", t.select(targets.hit, t.binary("multiply", targets.weights, self), zero));
  const Operand total = t.reduce("add", targets.weights, all_dims(self.rank()), 0.0);
  if (op.integer(3) == 0) {
    op.set(0, t.reduce("add", losses, {classes}, 0.0));
    return op.set(1, t.constant(0.0, {}, op.element(1)));
  }
  const Operand sum = t.reduce("add", losses, all_dims(self.rank()), 0.0);
  op.set(0, op.integer(3) == kMean ? t.binary("divide", sum, total) : sum);
  op.set(1, total);
}

// Arguments: gradient, self, target, weight, reduction, ignore_index, total weight.
void nll_loss_backward(Lowering& op) {
  Text& t = op.text();
  const Operand self = t.convert(op.in(1), op.compute());
  const Targets targets = targets_of(op, self, 2, 3, 5);
  const int64_t classes = self.rank() == 1 ? 0 : 1;
  Operand g = t.convert(op.in(0), self.element);
  if (op.integer(4) == kMean) g = t.binary("divide", g, t.convert(op.in(6), self.element));
  const bool each = op.integer(4) == 0 && g.rank() == self.rank() - 1;
  const Operand spread = t.broadcast(g, self.sizes, each ? other_dims(self.rank(), {classes}) : Dims{});
  const Operand product = t.unary("negate", t.binary("multiply", targets.weights, spread));
  op.set(0, t.select(targets.hit, product, t.constant(0.0, self.sizes, self.element)));
}

// Losses of the elements of argument 0 and 1, and the slope of each by argument 0.
using Elementwise = Operand (*)(Lowering& op, const Operand& x, const Operand& y, std::size_t extra);

Operand squared(Lowering& op, const Operand& x, const Operand& y, std::size_t /*extra*/) {
  const Operand d = op.text().binary("subtract", x, y);
  return op.text().binary("multiply", d, d);
}
Operand squared_slope(Lowering& op, const Operand& x, const Operand& y, std::size_t /*extra*/) {
  Text& t = op.text();
  return t.binary("multiply", t.constant(2.0, x.sizes, x.element), t.binary("subtract", x, y));
}

// Quadratic below the threshold, linear above: with beta (smooth L1), or with delta (Huber, that is beta times as
// much).
Operand rounded(Lowering& op, const Operand& x, const Operand& y, std::size_t extra, bool huber) {
  Text& t = op.text();
  const double bound = op.real(extra);
  const auto level = [&](double value) { return t.constant(value, x.sizes, x.element); };
  Operand d = t.unary("abs", t.binary("subtract", x, y));
  const double factor = huber ? bound : 1.0;
  const Operand linear = t.binary("multiply", level(factor), t.binary("subtract", d, level(0.5 * bound)));
  const Operand square = t.binary("multiply", level(huber ? 0.5 : 0.5 / bound), t.binary("multiply", d, d));
  if (bound == 0.0) return d;
  return t.select(t.compare(huber ? "LE" : "LT", d, level(bound)), square, linear);
}
Operand rounded_slope(Lowering& op, const Operand& x, const Operand& y, std::size_t extra, bool huber) {
  Text& t = op.text();
  const double bound = op.real(extra);
  const auto level = [&](double value) { return t.constant(value, x.sizes, x.element); };
  const Operand d = t.binary("subtract", x, y);
  Operand outside = t.binary("multiply", level(huber ? bound : 1.0), t.unary("sign", d));
  if (bound == 0.0) return outside;
  const Operand inside = huber ? d : t.binary("divide", d, level(bound));
  return t.select(t.compare(huber ? "LE" : "LT", t.unary("abs", d), level(bound)), inside, outside);
}
Operand smooth(Lowering& op, const Operand& x, const Operand& y, std::size_t extra) {
  return rounded(op, x, y, extra, false);
}
Operand smooth_slope(Lowering& op, const Operand& x, const Operand& y, std::size_t extra) {
  return rounded_slope(op, x, y, extra, false);
}
Operand huber(Lowering& op, const Operand& x, const Operand& y, std::size_t extra) {
  return rounded(op, x, y, extra, true);
}
Operand huber_slope(Lowering& op, const Operand& x, const Operand& y, std::size_t extra) {
  return rounded_slope(op, x, y, extra, true);
}

double elements(const Operand& x) {
  double n = 1.0;
  for (const int64_t size : x.sizes) n *= static_cast<double>(size);
  return n;
}

void reduce_losses(Lowering& op, const Operand& losses, int64_t reduction) {
  Text& t = op.text();
  if (reduction == 0) return op.set(0, losses);
  const Operand sum = t.reduce("add", losses, all_dims(losses.rank()), 0.0);
  op.set(0, reduction == kMean ? t.binary("divide", sum, t.constant(elements(losses), {}, sum.element)) : sum);
}

// Arguments: self, target, reduction, and one more.
template <Elementwise kLoss>
void loss(Lowering& op) {
  Text& t = op.text();
  const Operand x = t.convert(op.in(0), op.compute());
  const Operand y = t.convert(op.in(1), op.compute());
  Dims sizes = op.integer(2) == 0 ? op.out().sizes : x.rank() >= y.rank() ? x.sizes : y.sizes;
  reduce_losses(op, kLoss(op, t.expand(x, sizes), t.expand(y, sizes), 3), op.integer(2));
}

// Arguments: gradient, self, target, reduction, and one more.
template <Elementwise kSlope>
void loss_backward(Lowering& op) {
  Text& t = op.text();
  const Operand x = t.convert(op.in(1), op.compute());
  const Operand slope = kSlope(op, x, t.expand(t.convert(op.in(2), op.compute()), x.sizes), 4);
  Operand g = t.expand(t.convert(op.in(0), op.compute()), x.sizes);
  if (op.integer(3) == kMean) g = t.binary("divide", g, t.constant(elements(x), x.sizes, x.element));
  op.set(0, t.binary("multiply", slope, g));
}

// Cross entropy of probabilities; logarithms are at least -100. Arguments: self, target, weight, reduction.
void binary_cross_entropy(Lowering& op) {
  Text& t = op.text();
  const Operand x = t.convert(op.in(0), op.compute());
  const Operand y = t.convert(op.in(1), op.compute());
  const Operand one = t.constant(1.0, x.sizes, x.element);
  const Operand low = t.constant(-100.0, x.sizes, x.element);
  const Operand log_x = t.binary("maximum", t.unary("log", x), low);
  const Operand log_rest = t.binary("maximum", t.unary("log_plus_one", t.unary("negate", x)), low);
  const Operand hit = t.binary("multiply", y, log_x);
  const Operand miss = t.binary("multiply", t.binary("subtract", one, y), log_rest);
  Operand losses = t.unary("negate", t.binary("add", hit, miss));
  if (op.has(2)) losses = t.binary("multiply", losses, t.expand(t.convert(op.in(2), x.element), x.sizes));
  reduce_losses(op, losses, op.integer(3));
}
// Arguments: gradient, self, target, weight, reduction.
void binary_cross_entropy_backward(Lowering& op) {
  Text& t = op.text();
  const Operand x = t.convert(op.in(1), op.compute());
  const Operand y = t.convert(op.in(2), op.compute());
  const Operand one = t.constant(1.0, x.sizes, x.element);
  const Operand spread = t.binary("multiply", t.binary("subtract", one, x), x);
  const Operand floor = t.binary("maximum", spread, t.constant(1e-12, x.sizes, x.element));
  Operand g = t.binary("multiply", t.expand(t.convert(op.in(0), x.element), x.sizes), t.binary("subtract", x, y));
  g = t.binary("divide", g, floor);
  if (op.has(3)) g = t.binary("multiply", g, t.expand(t.convert(op.in(3), x.element), x.sizes));
  if (op.integer(4) == kMean) g = t.binary("divide", g, t.constant(elements(x), x.sizes, x.element));
  op.set(0, g);
}

constexpr OperationInfo kLosses[] = {
    {"nll_loss_forward", nll_loss},
    {"nll_loss2d_forward", nll_loss},
    {"nll_loss_backward", nll_loss_backward},
    {"nll_loss2d_backward", nll_loss_backward},
    {"mse_loss", loss<squared>},
    {"mse_loss_backward", loss_backward<squared_slope>},
    {"smooth_l1_loss", loss<smooth>},
    {"smooth_l1_loss_backward", loss_backward<smooth_slope>},
    {"huber_loss", loss<huber>},
    {"huber_loss_backward", loss_backward<huber_slope>},
    {"binary_cross_entropy", binary_cross_entropy},
    {"binary_cross_entropy_backward", binary_cross_entropy_backward},
};

}  // namespace

std::span<const OperationInfo> loss_operations() {
  return kLosses;
}

}  // namespace cohort::record::stablehlo
