#include "wings/mesh/strategy/space/windows.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "wings/mesh/strategy/space/halo.h"

namespace cohort::space {

std::vector<int64_t> spread(std::vector<int64_t> list, int64_t rank) {
  if (list.size() == 1) list.assign(static_cast<std::size_t>(rank), list.front());
  return list;
}

void Windowed::fetch_rows(const Layout& layout, int64_t dim, const Window& window) {
  const auto axis = static_cast<std::size_t>(layout.axes[static_cast<std::size_t>(dim)]);
  const int64_t size = layout.sizes[static_cast<std::size_t>(dim)];
  const int64_t all = outputs.sizes[static_cast<std::size_t>(dim)];
  const auto need_of = [&](const Range& out) { return window.inputs(out); };
  part = fetch(part, layout, dim, needs_of(size, all, layout.grid.parts[axis], need_of));
  const Range seen = window.inputs(outputs.own(dim));
  Window& own = windows[windows.size() - static_cast<std::size_t>(layout.dim() - dim)];
  own.before = std::max<int64_t>(0, -seen.begin);
  own.after = std::max<int64_t>(0, seen.end - size);
}

bool Windowed::empty() const {
  return std::find(wanted.begin(), wanted.end(), 0) != wanted.end() || part.numel() == 0;
}

// The same padding at both ends serves where what it makes too many of lies behind the last output.
std::pair<torch::Tensor, std::vector<int64_t>> Windowed::padded(double fill) const {
  std::vector<int64_t> padding;
  std::vector<int64_t> border;
  bool pads = false;
  for (const Window& each : windows) {
    const bool fits = each.before >= each.after;
    padding.push_back(fits ? each.before : 0);
    border.insert(border.begin(), {fits ? 0 : each.before, fits ? 0 : each.after});
    pads = pads || !fits;
  }
  return {pads ? at::constant_pad_nd(part, border, fill) : part, padding};
}

torch::Tensor Windowed::cropped(const torch::Tensor& y) const {
  torch::Tensor own = y;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    own = own.narrow(y.dim() - static_cast<int64_t>(wanted.size() - i), 0, wanted[i]);
  }
  return own.sizes() == y.sizes() ? y : own.contiguous();
}

Windowed fetch_windows(DividedCall& call, const torch::Tensor& x, const std::vector<Window>& windows,
                       int64_t left_out) {
  const Layout& layout = layout_of(x);
  Windowed result{.part = part_of(x), .windows = windows, .wanted = {}, .outputs = layout};
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const int64_t dim = x.dim() - static_cast<int64_t>(windows.size() - i);
    const Window& window = windows[i];
    const int64_t size = x.size(dim);
    const int64_t outputs = window.outputs(size);
    if (outputs < 1) {
      call.refuse(c10::str("a window of ", window.reach(), " rows does not fit into the ", size, " rows of dimension ",
                           dim, ", padded by ", window.before, " and ", window.after));
    }
    result.outputs.sizes[static_cast<std::size_t>(dim)] = outputs;
    const Range own = result.outputs.own(dim);
    result.wanted.push_back(own.size());
    if (layout.is_cut(dim) && dim != left_out) result.fetch_rows(layout, dim, window);
  }
  return result;
}

}  // namespace cohort::space
