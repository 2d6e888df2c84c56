// Pooling. The gradient of a maximum goes to the place that LibTorch's indices name; the gradient of an average is a
// sum over the windows that an element was in.
#include <algorithm>
#include <cmath>

#include "wings/xla/record/stablehlo/families.h"

namespace cohort::record::stablehlo {

namespace {

// The window over the last dimensions of x, with the padding that makes the result as large as LibTorch says.
WindowDims window_of(const Operand& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                     const Dims& dilation, const Dims& result) {
  WindowDims w(x.rank());
  const std::size_t first = x.sizes.size() - kernel.size();
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    const std::size_t d = first + i;
    w.size[d] = kernel[i];
    w.stride[d] = stride[i];
    w.dilation[d] = dilation[i];
    w.low[d] = padding[i];
    const int64_t extent = (kernel[i] - 1) * dilation[i] + 1;
    w.high[d] = (result[d] - 1) * stride[i] + extent - x.sizes[d] - padding[i];
  }
  return w;
}

// What is behind the last window falls away, for XLA wants no negative padding in a window.
Operand cut(Text& t, const Operand& x, WindowDims& w) {
  Dims end = x.sizes;
  for (std::size_t d = 0; d < end.size(); ++d) {
    if (w.high[d] >= 0) continue;
    end[d] += w.high[d];
    w.high[d] = 0;
  }
  return t.slice(x, Dims(end.size(), 0), end, Dims(end.size(), 1));
}

WindowDims max_window(Lowering& op, std::size_t at, const Operand& x, const Dims& result) {
  const int64_t n = std::max<int64_t>(static_cast<int64_t>(op.ints(at).size()), 2);
  const Dims kernel = repeated(op.ints(at), n);
  const Dims stride = op.ints(at + 1).empty() ? kernel : repeated(op.ints(at + 1), n);
  return window_of(x, kernel, stride, repeated(op.ints(at + 2), n), repeated(op.ints(at + 3), n), result);
}

// The index of each element within its image, as LibTorch numbers them.
Operand image_index(Text& t, const Dims& sizes) {
  const std::size_t rank = sizes.size();
  const Operand row = t.iota(static_cast<int64_t>(rank) - 2, sizes, "i64");
  const Operand column = t.iota(static_cast<int64_t>(rank) - 1, sizes, "i64");
  return t.binary("add", t.binary("multiply", row, t.integer(sizes[rank - 1], sizes, "i64")), column);
}

// Fills x up at the borders so that every window lies inside.
Operand filled_up(Text& t, const Operand& x, const WindowDims& w, const Operand& value) {
  Dims high = w.high;
  for (int64_t& one : high) one = std::max<int64_t>(one, 0);
  return t.pad(x, value, w.low, high, Dims(high.size(), 0));
}

// The greatest element of each window and its index: of equal ones the first, of NaNs the last, as LibTorch has it.
// Each place of the window is a slice with the strides.
std::pair<Operand, Operand> max_with_index(Text& t, const Operand& x, const WindowDims& w, const Dims& result) {
  const std::size_t rank = result.size();
  const Operand values = filled_up(t, x, w, t.constant(-INFINITY, {}, x.element));
  const Operand indices = filled_up(t, image_index(t, x.sizes), w, t.integer(-1, {}, "i64"));
  Operand best = t.constant(-INFINITY, result, x.element);
  Operand at = t.integer(-1, result, "i64");
  const Operand none = at;
  for (int64_t i = 0; i < w.size[rank - 2]; ++i) {
    for (int64_t j = 0; j < w.size[rank - 1]; ++j) {
      Dims begin(rank, 0);
      begin[rank - 2] = i * w.dilation[rank - 2];
      begin[rank - 1] = j * w.dilation[rank - 1];
      Dims end = begin;
      for (std::size_t d = 0; d < rank; ++d) end[d] += (result[d] - 1) * w.stride[d] + 1;
      const Operand value = t.slice(values, begin, end, w.stride);
      const Operand index = t.slice(indices, begin, end, w.stride);
      const Operand better = t.binary("or", t.compare("GT", value, best), t.compare("NE", value, value));
      const Operand wins = t.binary("or", better, t.compare("EQ", at, none));
      const Operand take = t.binary("and", wins, t.compare("NE", index, none));
      best = t.select(take, value, best);
      at = t.select(take, index, at);
    }
  }
  return {best, at};
}

void max_pool(Lowering& op) {
  Text& t = op.text();
  const Operand x = op.in(0);
  WindowDims w = max_window(op, 1, x, op.out().sizes);
  if (op.wants(1)) {
    const auto [value, index] = max_with_index(t, x, w, op.out().sizes);
    op.set(0, value);
    return op.set(1, index);
  }
  const Operand inside = cut(t, x, w);
  op.set(0, t.reduce_window("maximum", inside, w, -INFINITY));
}

// Adds each gradient to the element that its index names.
Operand scattered(Text& t, const Operand& g, const Operand& indices, const Dims& sizes) {
  const std::size_t rank = sizes.size();
  int64_t images = 1;
  for (std::size_t d = 0; d + 2 < rank; ++d) images *= sizes[d];
  const int64_t image = sizes[rank - 1] * sizes[rank - 2];
  const int64_t cells = g.sizes[rank - 1] * g.sizes[rank - 2];
  const Operand start =
      t.binary("multiply", t.iota(0, {images, cells}, "i64"), t.integer(image, {images, cells}, "i64"));
  const Operand at = t.reshape(t.binary("add", t.reshape(indices, {images, cells}), start), {images * cells, 1});
  const Operand zero = t.constant(0.0, {images * image}, g.element);
  return t.reshape(t.scatter(zero, at, t.reshape(g, {images * cells}), {{}, {0}, {0}, 1}, "add"), sizes);
}

// Arguments: gradient, input, kernel, stride, padding, dilation, ceil_mode, indices. Without dilation the places are
// found again in the input, which TPUs do faster than adding by indices.
void max_pool_backward(Lowering& op) {
  Text& t = op.text();
  const Operand g = t.convert(op.in(0), op.compute());
  const Operand x = t.convert(op.in(1), op.compute());
  if (max_pool_reads_indices(op.ints(5))) return op.set(0, scattered(t, g, op.in(7), op.out().sizes));
  WindowDims w = max_window(op, 2, x, g.sizes);
  const Operand inside = cut(t, x, w);
  const Operand filled = filled_up(t, inside, w, t.constant(-INFINITY, {}, x.element));
  WindowDims bare = w;
  bare.low.assign(w.low.size(), 0);
  bare.high = bare.low;
  const Operand sum = t.select_and_scatter(filled, g, bare);
  Dims end = w.low;
  for (std::size_t d = 0; d < end.size(); ++d) end[d] += inside.sizes[d];
  const Operand own = t.slice(sum, w.low, end, Dims(end.size(), 1));
  Dims behind = x.sizes;
  for (std::size_t d = 0; d < behind.size(); ++d) behind[d] -= own.sizes[d];
  if (own.sizes == x.sizes) return op.set(0, own);
  op.set(0, t.pad(own, t.constant(0.0, {}, own.element), Dims(behind.size(), 0), behind, Dims(behind.size(), 0)));
}

struct Average {
  Dims kernel, stride, padding;
  bool includes_padding = true;
  double divisor = 0.0;  // 0: the number of elements
};

Average average_of(Lowering& op, std::size_t at) {
  const int64_t n = std::max<int64_t>(static_cast<int64_t>(op.ints(at).size()), 2);
  Average a;
  a.kernel = repeated(op.ints(at), n);
  a.stride = op.ints(at + 1).empty() ? a.kernel : repeated(op.ints(at + 1), n);
  a.padding = repeated(op.ints(at + 2), n);
  a.includes_padding = op.flag(at + 4);
  if (op.has(at + 5)) a.divisor = static_cast<double>(op.integer(at + 5));
  return a;
}

// The number by which each window's sum is divided: LibTorch counts padding only up to `padding` behind the image.
Operand divisors(Text& t, const Operand& x, const Average& a, const Dims& result) {
  if (a.divisor != 0.0) return t.constant(a.divisor, result, x.element);
  Operand counted = t.constant(1.0, x.sizes, x.element);
  Dims padding = a.padding;
  if (a.includes_padding) {
    Dims both(x.sizes.size(), 0);
    for (std::size_t i = 0; i < padding.size(); ++i) both[x.sizes.size() - padding.size() + i] = padding[i];
    counted = t.pad(counted, t.constant(1.0, {}, x.element), both, both, Dims(both.size(), 0));
    padding.assign(padding.size(), 0);
  }
  WindowDims w = window_of(counted, a.kernel, a.stride, padding, Dims(padding.size(), 1), result);
  const Operand inside = cut(t, counted, w);
  return t.reduce_window("add", inside, w, 0.0);
}

void average_pool(Lowering& op) {
  Text& t = op.text();
  const Operand x = t.convert(op.in(0), op.compute());
  const Average a = average_of(op, 1);
  WindowDims w = window_of(x, a.kernel, a.stride, a.padding, Dims(a.kernel.size(), 1), op.out().sizes);
  const Operand inside = cut(t, x, w);
  op.set(0, t.binary("divide", t.reduce_window("add", inside, w, 0.0), divisors(t, x, a, op.out().sizes)));
}

void average_pool_backward(Lowering& op) {
  Text& t = op.text();
  const Operand g = t.convert(op.in(0), op.compute());
  const Operand x = t.convert(op.in(1), op.compute());
  const Average a = average_of(op, 2);
  const Operand share = t.binary("divide", g, divisors(t, x, a, g.sizes));
  Dims low(g.sizes.size(), 0);
  Dims high = low;
  Dims interior = low;
  WindowDims w(g.rank());
  const std::size_t first = g.sizes.size() - a.kernel.size();
  for (std::size_t i = 0; i < a.kernel.size(); ++i) {
    const std::size_t d = first + i;
    interior[d] = a.stride[i] - 1;
    low[d] = a.kernel[i] - 1 - a.padding[i];
    const int64_t dilated = (g.sizes[d] - 1) * a.stride[i] + 1;
    high[d] = x.sizes[d] + a.kernel[i] - 1 - dilated - low[d];
    w.size[d] = a.kernel[i];
  }
  const Operand spaced = t.pad(share, t.constant(0.0, {}, share.element), low, high, interior);
  op.set(0, t.reduce_window("add", spaced, w, 0.0));
}

// A matrix with 1 / n where input i is one of the n that output o is the average of.
Operand averaging_matrix(Text& t, int64_t out, int64_t in, const std::string& e) {
  std::string rows;
  for (int64_t o = 0; o < out; ++o) {
    const int64_t begin = o * in / out;
    const int64_t end = ((o + 1) * in + out - 1) / out;
    std::string row;
    for (int64_t i = 0; i < in; ++i) {
      const bool inside = i >= begin && i < end;
      row += (i == 0 ? "" : ", ") + literal(inside ? 1.0 / static_cast<double>(end - begin) : 0.0, e);
    }
    rows += (o == 0 ? "[" : ", [") + row + "]";
  }
  return t.emit("stablehlo.constant dense<[" + rows + "]> : " + type_text({out, in}, e), {out, in}, e);
}

// Averages over each image's regions are a product with such a matrix on either side.
Operand between(Text& t, const Operand& x, const Operand& rows, const Operand& columns, bool backward) {
  const int64_t r = x.rank();
  const Operand by_column = t.dot(x, columns, {}, {}, {r - 1}, {backward ? 0 : 1});
  const Operand by_row = t.dot(by_column, rows, {}, {}, {r - 2}, {backward ? 0 : 1});
  Dims order = all_dims(r);
  std::swap(order[static_cast<std::size_t>(r) - 1], order[static_cast<std::size_t>(r) - 2]);
  return t.transpose(by_row, order);
}
void adaptive_average_pool(Lowering& op) {
  Text& t = op.text();
  const Operand x = t.convert(op.in(0), op.compute());
  const Dims& out = op.out().sizes;
  const std::size_t r = out.size();
  op.set(0, between(t, x, averaging_matrix(t, out[r - 2], x.sizes[r - 2], x.element),
                    averaging_matrix(t, out[r - 1], x.sizes[r - 1], x.element), false));
}
void adaptive_average_pool_backward(Lowering& op) {
  Text& t = op.text();
  const Operand g = t.convert(op.in(0), op.compute());
  const Dims& in = op.out().sizes;
  const std::size_t r = in.size();
  op.set(0, between(t, g, averaging_matrix(t, g.sizes[r - 2], in[r - 2], g.element),
                    averaging_matrix(t, g.sizes[r - 1], in[r - 1], g.element), true));
}

constexpr OperationInfo kPooling[] = {
    {"max_pool2d_with_indices", max_pool},
    {"max_pool2d_with_indices_backward", max_pool_backward},
    {"avg_pool2d", average_pool},
    {"avg_pool2d_backward", average_pool_backward},
    {"_adaptive_avg_pool2d", adaptive_average_pool},
    {"_adaptive_avg_pool2d_backward", adaptive_average_pool_backward},
};

}  // namespace

bool max_pool_reads_indices(const Dims& dilation) {
  return std::any_of(dilation.begin(), dilation.end(), [](int64_t d) { return d != 1; });
}

std::span<const OperationInfo> pooling_operations() {
  return kPooling;
}

}  // namespace cohort::record::stablehlo
