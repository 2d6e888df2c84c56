// Views. as_strided is taken apart into slices, reshapes and transpositions of the memory where its strides nest, that
// is, where each is a multiple of the next and no index runs over into the next dimension: that is so for all views
// that LibTorch's view operations make, except for diagonals and overlapping windows, which become a gather.
#include "wings/xla/record/stablehlo/strided.h"

#include <algorithm>

namespace cohort::record::stablehlo {

namespace {

Operand flat(Text& text, const Operand& x) {
  return text.reshape(x, {numel(x.sizes)});
}

// A memory cut so that each dimension of a view is a range of one of its dimensions.
struct Cut {
  Dims dims;           // the view's dimensions that have more than one element and a stride, the greatest stride first
  Dims extents;        // the memory's dimensions: one for each of `dims`, and one behind them for the last stride
  Dims begin;          // where the ranges begin
  int64_t padded = 0;  // the elements of the memory when it is filled up to a whole number of rows
};

// Returns the cut, or nothing where the strides do not nest.
std::optional<Cut> cut(const Dims& sizes, const Dims& strides, int64_t offset, int64_t numel) {
  Cut result;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1 && strides[d] != 0) result.dims.push_back(static_cast<int64_t>(d));
  }
  const auto stride = [&](int64_t d) { return strides[static_cast<std::size_t>(d)]; };
  std::stable_sort(result.dims.begin(), result.dims.end(), [&](int64_t a, int64_t b) { return stride(a) > stride(b); });
  if (result.dims.empty()) {
    result.extents = {numel};
    result.begin = {offset};
    result.padded = numel;
    return result;
  }
  const int64_t first = stride(result.dims[0]);
  result.padded = (numel + first - 1) / first * first;
  result.extents.push_back(result.padded / first);
  int64_t rest = offset;
  for (std::size_t i = 0; i < result.dims.size(); ++i) {
    const int64_t own = stride(result.dims[i]);
    const int64_t next = i + 1 < result.dims.size() ? stride(result.dims[i + 1]) : 1;
    if (own % next != 0) return std::nullopt;
    result.extents.push_back(own / next);
    result.begin.push_back(rest / own);
    rest %= own;
    if (result.begin[i] + sizes[static_cast<std::size_t>(result.dims[i])] > result.extents[i]) return std::nullopt;
  }
  result.begin.push_back(rest);
  if (result.extents.back() == 1) {  // the last stride is 1
    result.extents.pop_back();
    result.begin.pop_back();
  }
  return result;
}

Dims window_sizes(const Cut& c, const Dims& sizes) {
  Dims window;
  for (const int64_t d : c.dims) window.push_back(sizes[static_cast<std::size_t>(d)]);
  window.resize(c.extents.size(), 1);
  return window;
}

// The memory in the dimensions of the cut.
Operand in_cut(Text& text, const Operand& memory, const Cut& c) {
  const int64_t missing = c.padded - numel(memory.sizes);
  if (missing == 0) return text.reshape(memory, c.extents);
  const Operand line = flat(text, memory);
  return text.reshape(text.pad(line, text.constant(0.0, {}, line.element), {0}, {missing}, {0}), c.extents);
}

// The index of each element of the view in the memory, [elements, 1].
Operand indices(Text& text, const Dims& sizes, const Dims& strides, int64_t offset) {
  Operand at = text.integer(offset, sizes, "i64");
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] <= 1 || strides[d] == 0) continue;
    const Operand steps = text.iota(static_cast<int64_t>(d), sizes, "i64");
    at = text.binary("add", at, text.binary("multiply", steps, text.integer(strides[d], sizes, "i64")));
  }
  return text.reshape(at, {numel(sizes), 1});
}

// Puts the dimensions of the cut's window, in the order of their strides, into the order of the view.
Operand in_view(Text& text, const Operand& window, const Cut& c, const Dims& sizes) {
  Dims order = c.dims;
  std::sort(order.begin(), order.end());
  Dims permutation;
  Dims kept;
  for (const int64_t d : order) {
    permutation.push_back(std::find(c.dims.begin(), c.dims.end(), d) - c.dims.begin());
    kept.push_back(sizes[static_cast<std::size_t>(d)]);
  }
  Dims squeezed = window.sizes;
  squeezed.resize(c.dims.size());
  const Operand ordered = text.transpose(text.reshape(window, squeezed), permutation);
  return text.broadcast(ordered, sizes, order);
}

}  // namespace

Operand strided_read(Text& text, const Operand& memory, const Dims& sizes, const Dims& strides, int64_t offset) {
  const int64_t elements = numel(memory.sizes);
  if (numel(sizes) == 0) return text.constant(0.0, sizes, memory.element);
  const std::optional<Cut> c = cut(sizes, strides, offset, elements);
  if (!c) {
    const GatherText gather{{}, {0}, {0}, {1}, 1};
    return text.reshape(text.gather(flat(text, memory), indices(text, sizes, strides, offset), gather, {numel(sizes)}),
                        sizes);
  }
  const Dims window = window_sizes(*c, sizes);
  Dims end;
  for (std::size_t i = 0; i < window.size(); ++i) end.push_back(c->begin[i] + window[i]);
  const Operand cut_memory = in_cut(text, memory, *c);
  return in_view(text, text.slice(cut_memory, c->begin, end, Dims(window.size(), 1)), *c, sizes);
}

Operand strided_write(Text& text, const Operand& memory, const Operand& value, const Dims& sizes, const Dims& strides,
                      int64_t offset) {
  const int64_t elements = numel(memory.sizes);
  if (numel(sizes) == 0) return memory;
  const std::optional<Cut> c = cut(sizes, strides, offset, elements);
  if (!c) {
    const ScatterText scatter{{}, {0}, {0}, 1};
    const Operand line =
        text.scatter(flat(text, memory), indices(text, sizes, strides, offset), flat(text, value), scatter, "");
    return text.reshape(line, memory.sizes);
  }
  // The value with the greatest stride first; dimensions of one element fall away.
  Dims kept;
  for (const int64_t size : sizes) {
    if (size > 1) kept.push_back(size);
  }
  Dims order = c->dims;
  std::sort(order.begin(), order.end());
  Dims permutation;
  for (const int64_t d : c->dims) permutation.push_back(std::find(order.begin(), order.end(), d) - order.begin());
  const Operand window = text.reshape(text.transpose(text.reshape(value, kept), permutation), window_sizes(*c, sizes));
  Operand written = window;
  if (window.sizes != c->extents) written = text.update_slice(in_cut(text, memory, *c), window, c->begin);
  if (c->padded > elements) written = text.slice(flat(text, written), {0}, {elements}, {1});
  return text.reshape(written, memory.sizes);
}

Operand strided_add(Text& text, const Operand& memory, const Operand& value, const Dims& sizes, const Dims& strides,
                    int64_t offset) {
  const Operand at = indices(text, sizes, strides, offset);
  return text.reshape(text.scatter(flat(text, memory), at, flat(text, value), {{}, {0}, {0}, 1}, "add"), memory.sizes);
}

}  // namespace cohort::record::stablehlo
