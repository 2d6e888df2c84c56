// Upsampling to whole multiples of a size, by repeating elements, and to any size, by linear interpolation.
#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

// Returns how often elements are repeated in a dimension. "scale" is the argument that may say it, too.
int64_t factor_of(Lowering& op, int64_t small, int64_t large, std::size_t scale) {
  const int64_t factor = small == 0 ? 0 : large / small;
  const bool whole = factor > 0 && factor * small == large;
  if (whole && (!op.has(scale) || op.real(scale) == static_cast<double>(factor))) return factor;
  op.refuse("a size of " + std::to_string(large) + " from " + std::to_string(small) + ", which is no whole multiple");
}

// Arguments: x, the size of the result, the scales of height and width.
void nearest(Lowering& op) {
  Text& t = op.text();
  const Operand x = op.in(0);
  const Dims& out = op.out().sizes;
  const int64_t high = factor_of(op, x.sizes[2], out[2], 2);
  const int64_t wide = factor_of(op, x.sizes[3], out[3], 3);
  const Operand repeated = t.broadcast(x, {x.sizes[0], x.sizes[1], x.sizes[2], high, x.sizes[3], wide}, {0, 1, 2, 4});
  op.set(0, t.reshape(repeated, out));
}

// Arguments: the gradient, its size, the size of x, the scales of height and width.
void nearest_backward(Lowering& op) {
  Text& t = op.text();
  const Operand g = t.convert(op.in(0), op.compute());
  const Dims& in = op.out().sizes;
  const int64_t high = factor_of(op, in[2], g.sizes[2], 3);
  const int64_t wide = factor_of(op, in[3], g.sizes[3], 4);
  const Operand parts = t.reshape(g, {in[0], in[1], in[2], high, in[3], wide});
  op.set(0, t.reduce("add", parts, {3, 5}, 0.0));
}

// Returns the matrix [large, small] that interpolates between the elements of a dimension. "scale" is the argument that
// may say the factor.
Operand interpolation(Lowering& op, int64_t small, int64_t large, bool align_corners, std::size_t scale) {
  Text& t = op.text();
  const std::string element = op.compute();
  const Dims sizes = {large, small};
  const auto number = [&](double value) { return t.constant(value, sizes, element); };
  double step = static_cast<double>(small) / static_cast<double>(large);
  if (op.has(scale)) step = 1.0 / op.real(scale);
  if (align_corners) step = large == 1 ? 0.0 : static_cast<double>(small - 1) / static_cast<double>(large - 1);
  Operand place = t.binary("multiply", t.iota(0, sizes, element), number(step));
  if (!align_corners) place = t.binary("add", place, number(0.5 * step - 0.5));
  place = t.binary("minimum", t.binary("maximum", place, number(0.0)), number(static_cast<double>(small - 1)));
  const Operand distance = t.unary("abs", t.binary("subtract", place, t.iota(1, sizes, element)));
  return t.binary("maximum", t.binary("subtract", number(1.0), distance), number(0.0));
}

// Multiplies height and width by matrices, of which the dimension "contracted" meets that of x.
void multiply_both(Lowering& op, const Operand& x, const Operand& high, const Operand& wide, int64_t contracted) {
  Text& t = op.text();
  const Operand half = t.dot(t.convert(x, op.compute()), high, {}, {}, {2}, {contracted});
  op.set(0, t.dot(half, wide, {}, {}, {2}, {contracted}));
}

// Arguments: x, the size of the result, whether corners meet, the scales of height and width.
void bilinear(Lowering& op) {
  const Operand x = op.in(0);
  const Dims& out = op.out().sizes;
  const bool corners = op.flag(2);
  multiply_both(op, x, interpolation(op, x.size(2), out[2], corners, 3),
                interpolation(op, x.size(3), out[3], corners, 4), 1);
}

// Arguments: the gradient, its size, the size of x, whether corners meet, the scales of height and width.
void bilinear_backward(Lowering& op) {
  const Operand g = op.in(0);
  const Dims& in = op.out().sizes;
  const bool corners = op.flag(3);
  multiply_both(op, g, interpolation(op, in[2], g.size(2), corners, 4), interpolation(op, in[3], g.size(3), corners, 5),
                0);
}

constexpr OperationInfo kResampling[] = {
    {"upsample_nearest2d", nearest},
    {"upsample_nearest2d_backward", nearest_backward},
    {"upsample_bilinear2d", bilinear},
    {"upsample_bilinear2d_backward", bilinear_backward},
};

}  // namespace

std::span<const OperationInfo> resampling_operations() {
  return kResampling;
}

}  // namespace cohort::record::stablehlo
