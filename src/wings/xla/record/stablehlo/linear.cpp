// Products of matrices. Half precision is multiplied as it is; the accumulator is the device's affair.
#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

Operand matrix(Lowering& op, std::size_t i) {
  return op.text().convert(op.in(i), op.element());
}

void mm(Lowering& op) {
  op.set(0, op.text().dot(matrix(op, 0), matrix(op, 1), {}, {}, {1}, {0}));
}
void bmm(Lowering& op) {
  op.set(0, op.text().dot(matrix(op, 0), matrix(op, 1), {0}, {0}, {2}, {1}));
}
void mv(Lowering& op) {
  op.set(0, op.text().dot(matrix(op, 0), matrix(op, 1), {}, {}, {1}, {0}));
}
void dot(Lowering& op) {
  op.set(0, op.text().dot(matrix(op, 0), matrix(op, 1), {}, {}, {0}, {0}));
}

// beta * self + alpha * product.
void add_product(Lowering& op, const Operand& product) {
  Text& t = op.text();
  const auto scaled = [&](const Operand& x, std::size_t i) {
    Operand wide = t.convert(x, op.compute());
    if (op.is_number(i, 1.0)) return wide;
    return t.binary("multiply", wide, t.expand(op.number(i, op.compute()), x.sizes));
  };
  const Operand scaled_product = scaled(product, 4);
  if (op.is_number(3, 0.0)) return op.set(0, scaled_product);
  op.set(0, t.binary("add", scaled_product, t.expand(scaled(matrix(op, 0), 3), op.out().sizes)));
}
void addmm(Lowering& op) {
  add_product(op, op.text().dot(matrix(op, 1), matrix(op, 2), {}, {}, {1}, {0}));
}
void baddbmm(Lowering& op) {
  add_product(op, op.text().dot(matrix(op, 1), matrix(op, 2), {0}, {0}, {2}, {1}));
}
void addmv(Lowering& op) {
  add_product(op, op.text().dot(matrix(op, 1), matrix(op, 2), {}, {}, {1}, {0}));
}

constexpr uint32_t kBetaAlpha = 1U << 3 | 1U << 4;

constexpr OperationInfo kLinear[] = {
    {"mm", mm},
    {"bmm", bmm},
    {"mv", mv},
    {"dot", dot},
    {"addmm", addmm, kBetaAlpha},
    {"baddbmm", baddbmm, kBetaAlpha},
    {"addmv", addmv, kBetaAlpha},
};

}  // namespace

std::span<const OperationInfo> linear_operations() {
  return kLinear;
}

}  // namespace cohort::record::stablehlo
