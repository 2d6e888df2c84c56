// Operations that move elements: dimensions that are cut stay what they are, or rows come from other parts.
#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <optional>

#include "wings/mesh/strategy/space/halo.h"
#include "wings/mesh/strategy/space/rules.h"

namespace cohort::space {

namespace {

// The argument list of sizes or dimensions.
std::vector<int64_t> list_of(DividedCall& call, std::size_t i) {
  return call[i].toIntVector();
}

// Calls with the part of the first argument and divides what comes by a layout.
void call_with_part(DividedCall& call, const torch::Tensor& part, const Layout& layout) {
  call[0] = part;
  call.forward();
  call.divide_results(layout);
}

void call_unsqueeze(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  Layout layout = layout_of(x);
  const int64_t dim = wrapped(call[1].toInt(), x.dim() + 1);
  layout.sizes.insert(layout.sizes.begin() + dim, 1);
  layout.axes.insert(layout.axes.begin() + dim, kWhole);
  call_with_part(call, part_of(x), layout);
}

void drop(Layout& layout, int64_t dim) {
  layout.sizes.erase(layout.sizes.begin() + dim);
  layout.axes.erase(layout.axes.begin() + dim);
}

void call_squeeze(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  Layout layout = layout_of(x);
  const int64_t dim = wrapped(call[1].toInt(), x.dim());
  if (x.size(dim) != 1) return call.finish({x});
  if (layout.is_cut(dim)) return call_whole(call);
  drop(layout, dim);
  call_with_part(call, part_of(x), layout);
}

void permute_to(DividedCall& call, const std::vector<int64_t>& order) {
  const torch::Tensor x = call.tensor(0);
  Layout layout = layout_of(x);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<std::size_t>(wrapped(order[i], x.dim()));
    layout.sizes[i] = x.size(static_cast<int64_t>(from));
    layout.axes[i] = layout_of(x).axes[from];
  }
  call_with_part(call, part_of(x), layout);
}

void call_permute(DividedCall& call) {
  permute_to(call, list_of(call, 1));
}

void call_transpose(DividedCall& call) {
  const int64_t rank = call.tensor(0).dim();
  std::vector<int64_t> order;
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  std::swap(order[static_cast<std::size_t>(wrapped(call[1].toInt(), rank))],
            order[static_cast<std::size_t>(wrapped(call[2].toInt(), rank))]);
  permute_to(call, order);
}

void call_select(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  Layout layout = layout_of(x);
  const int64_t dim = wrapped(call[1].toInt(), x.dim());
  if (layout.is_cut(dim)) return call_whole(call);
  drop(layout, dim);
  call_with_part(call, part_of(x), layout);
}

// Returns the rows of a cut dimension that shift: output o is row o * step + first, rows outside are filled.
torch::Tensor shifted(const torch::Tensor& part, const Layout& layout, int64_t dim, int64_t first, int64_t outputs,
                      int64_t step, const at::Scalar& fill) {
  const auto axis = static_cast<std::size_t>(layout.axes[static_cast<std::size_t>(dim)]);
  const int64_t parts = layout.grid.parts[axis];
  const Window window{.stride = step, .before = -first};
  const auto need_of = [&](const Range& out) { return window.inputs(out); };
  const int64_t size = layout.sizes[static_cast<std::size_t>(dim)];
  torch::Tensor rows = fetch(part, layout, dim, needs_of(size, outputs, parts, need_of));
  const Range out = part_of(outputs, parts, layout.grid.position(axis));
  if (step > 1) return rows.slice(dim, 0, rows.size(dim), step);
  if (rows.size(dim) == out.size()) return rows;
  const Range need = window.inputs(out);
  const Range have = common(need, {0, size});
  // Without rows of the tensor everything is filled; where the rest stands does not matter then.
  const int64_t before = have.empty() ? out.size() : have.begin - need.begin;
  std::vector<int64_t> padding(static_cast<std::size_t>(2 * (layout.dim() - dim)), 0);
  padding[padding.size() - 2] = before;
  padding[padding.size() - 1] = out.size() - before - rows.size(dim);
  return pad(rows, padding, fill);
}

void call_slice(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const Layout& layout = layout_of(x);
  const int64_t dim = wrapped(call[1].toInt(), x.dim());
  if (!layout.is_cut(dim)) return call_with_part(call, part_of(x), layout);
  const int64_t size = x.size(dim);
  const auto bound = [&](std::size_t i, int64_t otherwise) {
    const int64_t at = call[i].isNone() ? otherwise : call[i].toInt();
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t begin = bound(2, 0);
  const int64_t end = std::max(begin, bound(3, size));
  const int64_t step = call[4].toInt();
  Layout cut = layout;
  cut.sizes[static_cast<std::size_t>(dim)] = (end - begin + step - 1) / step;
  const torch::Tensor rows = shifted(part_of(x), layout, dim, begin, cut.sizes[static_cast<std::size_t>(dim)], step, 0);
  call.finish({make_divided(rows, cut)});
}

void call_pad(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  Layout layout = layout_of(x);
  torch::Tensor part = part_of(x);
  std::vector<int64_t> padding = list_of(call, 1);
  for (std::size_t i = 0; i + 1 < padding.size(); i += 2) {
    const int64_t dim = x.dim() - 1 - static_cast<int64_t>(i / 2);
    const int64_t outputs = x.size(dim) + padding[i] + padding[i + 1];
    if (outputs < 0) call.refuse(c10::str("more than all of dimension ", dim, " would be cut off"));
    if (layout.is_cut(dim)) {
      part = shifted(part, layout, dim, -padding[i], outputs, 1, call[2].toScalar());
      padding[i] = padding[i + 1] = 0;
    }
    layout.sizes[static_cast<std::size_t>(dim)] = outputs;
  }
  part = pad(part, padding, call[2].toScalar());
  call.finish({make_divided(part, layout)});
}

void call_cat(DividedCall& call) {
  const Layout first = layout_of(call.divided());
  const int64_t dim = wrapped(call[1].toInt(), first.dim());
  if (first.is_cut(dim)) call.refuse("dimension " + std::to_string(dim) + ", along which it joins, is cut");
  std::vector<torch::Tensor> list = call[0].toTensorVector();
  Layout layout = first;
  for (torch::Tensor& each : list) {
    layout.sizes[static_cast<std::size_t>(dim)] = each.size(dim);
    if (each.sizes() != c10::IntArrayRef(layout.sizes))
      call.refuse(c10::str("an operand has the sizes ", each.sizes()));
    each = matching_part(call, each, layout);
  }
  call[0] = list;
  call.forward();
  call.divide_results(layout);
}

// Splits along a dimension that is whole.
void call_split(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const auto dim = wrapped(call[call.find("dim").value()].toInt(), x.dim());
  if (layout_of(x).is_cut(dim)) call.refuse("dimension " + std::to_string(dim) + ", along which it splits, is cut");
  call_with_part(call, part_of(x), layout_of(x));
}

// Returns how new sizes are cut: a dimension that is cut has to be there again, with as many elements before it;
// nullopt if one is not.
std::optional<std::vector<int>> axes_after(const Layout& own, const std::vector<int64_t>& sizes) {
  std::vector<int> axes(sizes.size(), kWhole);
  std::size_t at = 0;
  int64_t before = 1;      // elements before `at`
  int64_t own_before = 1;  // elements before `dim`
  for (int64_t dim = 0; dim < own.dim(); ++dim) {
    const int64_t size = own.sizes[static_cast<std::size_t>(dim)];
    if (own.is_cut(dim)) {
      while (at < sizes.size() && (before < own_before || (sizes[at] == 1 && size != 1))) before *= sizes[at++];
      if (at == sizes.size() || before != own_before || sizes[at] != size) return std::nullopt;
      axes[at] = own.axes[static_cast<std::size_t>(dim)];
      before *= sizes[at++];
    }
    own_before *= size;
  }
  return axes;
}

// Sizes that leave the dimensions that are cut as they are; else the tensor becomes whole.
void call_reshape(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  std::vector<int64_t> sizes = list_of(call, 1);
  const auto unknown = std::find(sizes.begin(), sizes.end(), -1);
  if (unknown != sizes.end()) {
    *unknown = 1;
    const int64_t known = c10::multiply_integers(sizes);
    *unknown = known == 0 ? 0 : x.numel() / known;
  }
  const auto axes = axes_after(layout_of(x), sizes);
  if (!axes) return call_whole(call);
  const Layout layout{.grid = layout_of(x).grid, .sizes = sizes, .axes = *axes};
  call.finish({make_divided(part_of(x).reshape(layout.local_sizes()), layout)});
}

void call_flatten(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const int64_t first = wrapped(call[1].toInt(), x.dim());
  const int64_t last = wrapped(call[2].toInt(), x.dim());
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.erase(sizes.begin() + first, sizes.begin() + last + 1);
  sizes.insert(sizes.begin() + first, c10::multiply_integers(x.sizes().slice(first, last - first + 1)));
  call.finish({x.reshape(sizes)});
}

// Takes a dimension that is whole apart.
void call_unbind(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  Layout layout = layout_of(x);
  const int64_t dim = wrapped(call[1].toInt(), x.dim());
  if (layout.is_cut(dim)) call.refuse("dimension " + std::to_string(dim) + ", which it takes apart, is cut");
  drop(layout, dim);
  call_with_part(call, part_of(x), layout);
}

void call_expand(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const Layout& own = layout_of(x);
  std::vector<int64_t> sizes = list_of(call, 1);
  Layout layout = own;
  while (layout.dim() < static_cast<int64_t>(sizes.size())) {
    layout.sizes.insert(layout.sizes.begin(), 1);
    layout.axes.insert(layout.axes.begin(), kWhole);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (layout.axes[i] == kWhole) continue;
    if (sizes[i] != -1 && sizes[i] != layout.sizes[i]) return call_whole(call);
    sizes[i] = -1;
  }
  call[1] = sizes;
  call_with_part(call, part_of(x), layout);
}

// A mask that is drawn for the whole, so that all replicas draw as many numbers, and those of one device.
void call_bernoulli(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const torch::Tensor part = part_of(x);
  const Layout layout = layout_of(x);
  call[0] = at::empty(x.sizes(), part.options().requires_grad(false));
  call.forward();
  part.copy_(matching_part(call, call.tensor(0), layout));
  call.finish({x});
}

}  // namespace

void add_shape_rules(Rules& rules) {
  rules["unsqueeze"] = call_unsqueeze;
  rules["aten::squeeze.dim"] = call_squeeze;
  rules["permute"] = call_permute;
  rules["aten::transpose.int"] = call_transpose;
  rules["aten::select.int"] = call_select;
  rules["aten::slice.Tensor"] = call_slice;
  rules["constant_pad_nd"] = call_pad;
  rules["cat"] = rules["concat"] = rules["concatenate"] = call_cat;
  rules["aten::split.Tensor"] = rules["split_with_sizes"] = rules["chunk"] = call_split;
  rules["expand"] = call_expand;
  rules["aten::bernoulli_.float"] = call_bernoulli;
  for (const char* name : {"reshape", "view", "_unsafe_view"}) rules[name] = call_reshape;
  rules["aten::flatten.using_ints"] = call_flatten;
  rules["aten::unbind.int"] = call_unbind;
  rules["adaptive_max_pool2d"] = call_whole;
}

}  // namespace cohort::space
