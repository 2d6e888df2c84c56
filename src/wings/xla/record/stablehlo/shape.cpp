// Shapes: views of memory, permutations, joining, sorting.
#include "wings/xla/record/stablehlo/families.h"
#include "wings/xla/record/stablehlo/strided.h"

namespace cohort::record::stablehlo {

namespace {

void as_strided(Lowering& op) {
  op.set(0, strided_read(op.text(), op.in(0), op.ints(1), op.ints(2), op.integer(3)));
}

void as_strided_scatter(Lowering& op) {
  const Dims sizes = op.ints(2);
  const Dims strides = op.ints(3);
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1 && strides[d] == 0) op.refuse("writing to a tensor that was expanded (clone() it first)");
  }
  op.set(0, strided_write(op.text(), op.in(0), op.in(1), sizes, strides, op.integer(4)));
}

// Arguments: gradient, input_sizes, dim, size, step.
void unfold_backward(Lowering& op) {
  Text& t = op.text();
  const Operand g = op.in(0);
  const Dims sizes = op.ints(1);
  Dims strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  const auto dim = static_cast<std::size_t>(op.dim(2, static_cast<int64_t>(sizes.size())));
  strides.push_back(strides[dim]);
  strides[dim] *= op.integer(4);
  op.set(0, strided_add(t, t.constant(0.0, sizes, g.element), g, g.sizes, strides, 0));
}

void permute(Lowering& op) {
  op.set(0, op.text().transpose(op.in(0), op.ints(1)));
}

void cat(Lowering& op) {
  std::vector<Operand> list;
  for (const auto& x : op.list(0)) {
    if (x && !(x->rank() == 1 && x->size(0) == 0 && op.out().sizes.size() != 1))
      list.push_back(op.text().convert(*x, op.element()));
  }
  if (list.empty()) return op.set(0, op.text().constant(0.0, op.out().sizes, op.element()));
  op.set(0, op.text().concatenate(list, op.dim(1, list[0].rank())));
}
void stack(Lowering& op) {
  std::vector<Operand> list;
  const int64_t d = op.dim(1, static_cast<int64_t>(op.out().sizes.size()));
  Dims one = op.out().sizes;
  one[static_cast<std::size_t>(d)] = 1;
  for (const auto& x : op.list(0)) list.push_back(op.text().reshape(op.text().convert(x.value(), op.element()), one));
  op.set(0, op.text().concatenate(list, d));
}

void flip(Lowering& op) {
  const Operand x = op.in(0);
  op.set(0, op.has(1) && !op.ints(1).empty() ? op.text().reverse(x, op.dims(1, x.rank())) : x);
}

// Rolls along dimensions, one after the other; without dimensions the tensor is one line.
void roll(Lowering& op) {
  Text& t = op.text();
  Operand x = op.in(0);
  const Dims shifts = op.ints(1);
  Dims dims = op.ints(2);
  if (dims.empty()) {
    int64_t n = 1;
    for (const int64_t size : x.sizes) n *= size;
    x = t.reshape(x, {n});
    dims = {0};
  }
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const auto d = static_cast<std::size_t>(dims[i] < 0 ? dims[i] + x.rank() : dims[i]);
    const int64_t n = x.sizes[d];
    const int64_t shift = n == 0 ? 0 : ((shifts[i] % n) + n) % n;
    if (shift == 0) continue;
    Dims begin(x.sizes.size(), 0);
    Dims middle = x.sizes;
    middle[d] = n - shift;
    Dims start = begin;
    start[d] = n - shift;
    const Dims ones(x.sizes.size(), 1);
    x = t.concatenate({t.slice(x, start, x.sizes, ones), t.slice(x, begin, middle, ones)}, static_cast<int64_t>(d));
  }
  op.set(0, t.reshape(x, op.out().sizes));
}

void triangle(Lowering& op, const char* direction) {
  Text& t = op.text();
  const Operand x = op.in(0);
  const Operand row = t.iota(x.rank() - 2, x.sizes, "i64");
  const Operand column = t.iota(x.rank() - 1, x.sizes, "i64");
  const Operand moved = t.binary("add", row, t.integer(op.integer(1), x.sizes, "i64"));
  op.set(0, t.select(t.compare(direction, column, moved), x, t.constant(0.0, x.sizes, x.element)));
}
void tril(Lowering& op) {
  triangle(op, "LE");
}
void triu(Lowering& op) {
  triangle(op, "GE");
}

// Values and indices, sorted along a dimension.
std::vector<Operand> sorted(Lowering& op, int64_t d, bool descending) {
  const Operand x = op.in(0);
  return op.text().sort({x, op.text().iota(d, x.sizes, "i64")}, d, descending);
}
void sort_at(Lowering& op, std::size_t dim_at, bool descending) {
  const Operand x = op.in(0);
  if (x.rank() == 0) {
    op.set(0, x);
    return op.set(1, op.text().integer(0, {}, "i64"));
  }
  const auto both = sorted(op, op.dim(dim_at, x.rank()), descending);
  op.set(0, both[0]);
  op.set(1, both[1]);
}
void sort(Lowering& op) {
  sort_at(op, 1, op.flag(2));
}
void sort_stable(Lowering& op) {
  sort_at(op, 2, op.flag(3));
}
void topk(Lowering& op) {
  Text& t = op.text();
  const Operand x = op.in(0);
  if (x.rank() == 0) {
    op.set(0, t.reshape(x, op.out().sizes));
    return op.set(1, t.integer(0, op.out(1).sizes, "i64"));
  }
  const int64_t d = op.dim(2, x.rank());
  const auto both = sorted(op, d, op.flag(3));
  const Dims zeros(x.sizes.size(), 0);
  const Dims ones(x.sizes.size(), 1);
  op.set(0, t.slice(both[0], zeros, op.out(0).sizes, ones));
  op.set(1, t.slice(both[1], zeros, op.out(1).sizes, ones));
}

constexpr OperationInfo kShape[] = {
    {"as_strided", as_strided, 0, false, nullptr, true},
    {"as_strided_scatter", as_strided_scatter, 0, false, nullptr, true},
    {"permute", permute, 0, false, nullptr, true},
    {"unfold_backward", unfold_backward},
    {"cat", cat},
    {"_cat", cat},
    {"stack", stack},
    {"flip", flip},
    {"roll", roll},
    {"tril", tril},
    {"triu", triu},
    {"sort", sort},
    {"sort.stable", sort_stable},
    {"topk", topk},
};

}  // namespace

std::span<const OperationInfo> shape_operations() {
  return kShape;
}

}  // namespace cohort::record::stablehlo
