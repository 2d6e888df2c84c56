// Upsampling to whole multiples of a size, by repeating elements.
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

constexpr OperationInfo kResampling[] = {
    {"upsample_nearest2d", nearest},
    {"upsample_nearest2d_backward", nearest_backward},
};

}  // namespace

std::span<const OperationInfo> resampling_operations() {
  return kResampling;
}

}  // namespace cohort::record::stablehlo
