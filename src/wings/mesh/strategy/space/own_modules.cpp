// What modules of one's own need to compute with parts.
#include <algorithm>

#include "base/fail.h"
#include "cohort/replica.h"
#include "wings/mesh/strategy/space/halo.h"
#include "wings/mesh/strategy/space/rules.h"

namespace cohort {

torch::Tensor Replica::halo(const torch::Tensor& x, int64_t dim, int64_t before, int64_t after) {
  const int64_t at = space::wrapped(dim, x.dim());
  if (!is_divided(x) || at < 0 || at >= x.dim() || !space::layout_of(x).is_cut(at)) {
    fail<InvalidArgument>("[strategy] halo: a tensor of ", x.sizes(), " is not divided along dimension ", dim);
  }
  if (before < 0 || after < 0) {
    fail<InvalidArgument>("[strategy] halo: ", before, " rows before and ", after, " behind, wanted 0 or more");
  }
  const space::Layout& layout = space::layout_of(x);
  const int64_t size = x.size(at);
  const auto parts = layout.grid.parts[static_cast<std::size_t>(layout.axes[static_cast<std::size_t>(at)])];
  std::vector<space::Range> needs;
  for (int64_t part = 0; part < parts; ++part) {
    const space::Range own = space::part_of(size, parts, part);
    const space::Range need = space::common({own.begin - before, own.end + after}, {0, size});
    needs.push_back(need.empty() ? space::Range{} : need);
  }
  torch::Tensor rows = space::fetch(space::part_of(x), layout, at, needs);
  const space::Range own = layout.own(at);
  const int64_t above = std::max<int64_t>(0, before - own.begin);
  const int64_t below = before + own.size() + after - above - rows.size(at);
  if (above == 0 && below == 0) return rows;
  std::vector<int64_t> border(static_cast<std::size_t>(2 * (x.dim() - at)), 0);
  border[border.size() - 2] = above;
  border[border.size() - 1] = below;
  return space::pad(rows, border, 0);
}

torch::Tensor Replica::join(const torch::Tensor& part, const torch::Tensor& x) {
  if (!is_divided(x)) fail<InvalidArgument>("[strategy] join: a tensor of ", x.sizes(), " is not divided");
  space::Layout layout = space::layout_of(x);
  if (part.dim() != layout.dim()) {
    fail<InvalidArgument>("[strategy] join: a part of ", part.sizes(), ", wanted ", layout.dim(), " dimensions");
  }
  for (int64_t dim = 0; dim < layout.dim(); ++dim) {
    if (!layout.is_cut(dim)) {
      layout.sizes[static_cast<std::size_t>(dim)] = part.size(dim);
    } else if (part.size(dim) != layout.own(dim).size()) {
      fail<InvalidArgument>("[strategy] join: a part of ", part.sizes(), ", wanted ", layout.own(dim).size(),
                            " rows in dimension ", dim, ", of ", x.size(dim), " in ",
                            layout.grid.parts[static_cast<std::size_t>(layout.axes[static_cast<std::size_t>(dim)])],
                            " parts");
    }
  }
  return space::make_divided(part, std::move(layout));
}

}  // namespace cohort
