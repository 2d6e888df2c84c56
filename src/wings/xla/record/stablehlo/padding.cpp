// Padding with a number, with the picture mirrored at its edge, and with the edge itself. The gradients of the last two
// send what stands in the padding back to where it came from, along one dimension after the other.
#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

// The padding of one dimension. A negative one cuts.
struct Edge {
  std::size_t dim = 0;
  int64_t low = 0;
  int64_t high = 0;
};

// LibTorch lists the paddings from the last dimension on.
std::vector<Edge> edges_of(const Dims& list, int64_t rank) {
  std::vector<Edge> edges;
  for (std::size_t i = 0; i + 1 < list.size(); i += 2) {
    edges.push_back({.dim = static_cast<std::size_t>(rank) - 1 - i / 2, .low = list[i], .high = list[i + 1]});
  }
  return edges;
}

void constant_pad(Lowering& op) {
  const Operand x = op.in(0);
  Dims low(x.sizes.size(), 0);
  Dims high = low;
  for (const Edge& edge : edges_of(op.ints(1), x.rank())) {
    low[edge.dim] = edge.low;
    high[edge.dim] = edge.high;
  }
  op.set(0, op.text().pad(x, op.number(2, x.element), low, high, Dims(x.sizes.size(), 0)));
}

// Returns the elements [begin, end) along a dimension.
Operand part(Text& t, const Operand& x, std::size_t dim, int64_t begin, int64_t end) {
  Dims from(x.sizes.size(), 0);
  Dims to = x.sizes;
  from[dim] = begin;
  to[dim] = end;
  return t.slice(x, from, to, Dims(x.sizes.size(), 1));
}

// Returns zeros of n elements along a dimension with x from `begin` on.
Operand placed(Text& t, const Operand& x, std::size_t dim, int64_t begin, int64_t n) {
  Dims low(x.sizes.size(), 0);
  Dims high = low;
  low[dim] = begin;
  high[dim] = n - begin - x.sizes[dim];
  return t.pad(x, t.constant(0.0, {}, x.element), low, high, Dims(x.sizes.size(), 0));
}

// How a kind of padding makes the `count` elements before the first one (or behind the last one), and how it sends
// their gradient back to a tensor of n elements along the dimension.
struct Kind {
  Operand (*border)(Text& t, const Operand& x, std::size_t dim, bool low, int64_t count);
  Operand (*back)(Text& t, const Operand& border, std::size_t dim, bool low, int64_t n);
};

// The edge itself is not repeated.
Operand mirror(Text& t, const Operand& x, std::size_t dim, bool low, int64_t count) {
  const int64_t n = x.sizes[dim];
  const Operand taken = low ? part(t, x, dim, 1, 1 + count) : part(t, x, dim, n - 1 - count, n - 1);
  return t.reverse(taken, {static_cast<int64_t>(dim)});
}
Operand mirror_back(Text& t, const Operand& border, std::size_t dim, bool low, int64_t n) {
  const int64_t count = border.sizes[dim];
  return placed(t, t.reverse(border, {static_cast<int64_t>(dim)}), dim, low ? 1 : n - 1 - count, n);
}
constexpr Kind kMirror{mirror, mirror_back};

Operand repeat(Text& t, const Operand& x, std::size_t dim, bool low, int64_t count) {
  const int64_t n = x.sizes[dim];
  Dims sizes = x.sizes;
  sizes[dim] = count;
  return t.expand(low ? part(t, x, dim, 0, 1) : part(t, x, dim, n - 1, n), sizes);
}
Operand repeat_back(Text& t, const Operand& border, std::size_t dim, bool low, int64_t n) {
  Dims one = border.sizes;
  one[dim] = 1;
  const Operand sum = t.reshape(t.reduce("add", border, {static_cast<int64_t>(dim)}, 0.0), one);
  return placed(t, sum, dim, low ? 0 : n - 1, n);
}
constexpr Kind kRepeat{repeat, repeat_back};

// Arguments: self, padding.
void pad(Lowering& op, const Kind& kind) {
  Text& t = op.text();
  Operand x = op.in(0);
  for (const auto& [dim, low, high] : edges_of(op.ints(1), x.rank())) {
    const int64_t n = x.sizes[dim];
    std::vector<Operand> list;
    if (low > 0) list.push_back(kind.border(t, x, dim, true, low));
    list.push_back(part(t, x, dim, std::max<int64_t>(0, -low), n - std::max<int64_t>(0, -high)));
    if (high > 0) list.push_back(kind.border(t, x, dim, false, high));
    x = t.concatenate(list, static_cast<int64_t>(dim));
  }
  op.set(0, x);
}

// Arguments: gradient, self, padding.
void pad_backward(Lowering& op, const Kind& kind) {
  Text& t = op.text();
  const Operand x = op.in(1);
  Operand g = op.in(0);
  for (const auto& [dim, low, high] : edges_of(op.ints(2), x.rank())) {
    const int64_t n = x.sizes[dim];
    const int64_t end = g.sizes[dim] - std::max<int64_t>(0, high);
    const Operand middle = part(t, g, dim, std::max<int64_t>(0, low), end);
    Operand sum = placed(t, middle, dim, std::max<int64_t>(0, -low), n);
    if (low > 0) sum = t.binary("add", sum, kind.back(t, part(t, g, dim, 0, low), dim, true, n));
    if (high > 0) sum = t.binary("add", sum, kind.back(t, part(t, g, dim, end, g.sizes[dim]), dim, false, n));
    g = sum;
  }
  op.set(0, g);
}

void reflection_pad(Lowering& op) {
  pad(op, kMirror);
}
void reflection_pad_backward(Lowering& op) {
  pad_backward(op, kMirror);
}
void replication_pad(Lowering& op) {
  pad(op, kRepeat);
}
void replication_pad_backward(Lowering& op) {
  pad_backward(op, kRepeat);
}

constexpr OperationInfo kPadding[] = {
    {"constant_pad_nd", constant_pad, 1U << 2},
    {"reflection_pad1d", reflection_pad},
    {"reflection_pad2d", reflection_pad},
    {"reflection_pad3d", reflection_pad},
    {"reflection_pad1d_backward", reflection_pad_backward},
    {"reflection_pad2d_backward", reflection_pad_backward},
    {"reflection_pad3d_backward", reflection_pad_backward},
    {"replication_pad1d", replication_pad},
    {"replication_pad2d", replication_pad},
    {"replication_pad3d", replication_pad},
    {"replication_pad1d_backward", replication_pad_backward},
    {"replication_pad2d_backward", replication_pad_backward},
    {"replication_pad3d_backward", replication_pad_backward},
};

}  // namespace

std::span<const OperationInfo> padding_operations() {
  return kPadding;
}

}  // namespace cohort::record::stablehlo
