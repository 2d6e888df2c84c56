// Upsampling, dimension by dimension: each output is one row of the input, or a mixture of two, which its place in the
// whole tells.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "wings/mesh/strategy/space/halo.h"
#include "wings/mesh/strategy/space/rules.h"
#include "wings/mesh/strategy/space/windows.h"

namespace cohort::space {

namespace {

// Where an output lies in the input: between two rows, at so much of the way.
struct BetweenRows {
  int64_t low = 0;
  int64_t high = 0;
  double share = 0.0;  // of the row `high`
};
using PlaceOf = std::function<BetweenRows(int64_t)>;

torch::Tensor resample(torch::Tensor part, const Layout& layout, int64_t dim, int64_t outputs, const PlaceOf& place_of,
                       bool mixes) {
  const int64_t size = layout.sizes[static_cast<std::size_t>(dim)];
  Layout after = layout;
  after.sizes[static_cast<std::size_t>(dim)] = outputs;
  const Range own = after.own(dim);
  int64_t first = 0;
  if (layout.is_cut(dim)) {
    const auto axis = static_cast<std::size_t>(layout.axes[static_cast<std::size_t>(dim)]);
    const auto need_of = [&](const Range& out) {
      return Range{place_of(out.begin).low, place_of(out.end - 1).high + 1};
    };
    const std::vector<Range> needs = needs_of(size, outputs, layout.grid.parts[axis], need_of);
    first = needs[static_cast<std::size_t>(layout.grid.position(axis))].begin;
    part = fetch(part, layout, dim, needs);
  }
  std::vector<int64_t> low, high;
  std::vector<double> shares;
  for (int64_t out = own.begin; out < own.end; ++out) {
    const BetweenRows place = place_of(out);
    low.push_back(place.low - first);
    high.push_back(place.high - first);
    shares.push_back(place.share);
  }
  const auto rows = [&](const std::vector<int64_t>& list) {
    return part.index_select(dim, torch::tensor(list, torch::kLong).to(part.device()));
  };
  if (!mixes) return rows(low);
  std::vector<int64_t> shape(static_cast<std::size_t>(layout.dim() - dim), 1);
  shape[0] = own.size();
  const torch::Tensor share = torch::tensor(shares, torch::kDouble).view(shape).to(part.options().requires_grad(false));
  return rows(low) * (1.0 - share) + rows(high) * share;
}

// LibTorch's own rule: a scale that is given counts, else that of the sizes.
double scale_of(int64_t inputs, int64_t outputs, std::optional<double> given) {
  return given && *given > 0.0 ? 1.0 / *given : static_cast<double>(inputs) / static_cast<double>(outputs);
}

PlaceOf nearest(int64_t inputs, double scale) {
  return [=](int64_t out) {
    const auto at = std::min<int64_t>(
        static_cast<int64_t>(std::floor(static_cast<float>(out) * static_cast<float>(scale))), inputs - 1);
    return BetweenRows{at, at, 0.0};
  };
}

PlaceOf linear(int64_t inputs, int64_t outputs, double scale, bool align_corners) {
  const double step = !align_corners ? scale
                      : outputs > 1  ? static_cast<double>(inputs - 1) / static_cast<double>(outputs - 1)
                                     : 0.0;
  return [=](int64_t out) {
    const auto index = static_cast<double>(out);
    const double at = align_corners ? index * step : std::max(0.0, (index + 0.5) * step - 0.5);
    const auto low = std::min<int64_t>(static_cast<int64_t>(at), inputs - 1);
    const int64_t high = std::min<int64_t>(low + 1, inputs - 1);
    return BetweenRows{low, high, std::min(at - static_cast<double>(low), 1.0)};
  };
}

// The arguments: output_size, then align_corners for the linear ones, then a list of scales or two of them.
void call_upsample(DividedCall& call) {
  const torch::Tensor x = call.tensor(0);
  const bool mixes = call.short_name() == "upsample_bilinear2d";
  const auto aligned = call.find("align_corners");
  const bool align_corners = aligned && call[*aligned].toBool();
  std::vector<std::optional<double>> scales(2);
  const auto list = call.find("scale_factors");
  if (list && !call[*list].isNone()) {
    const std::vector<double> given = call[*list].toDoubleVector();
    std::copy(given.begin(), given.end(), scales.begin());
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const auto one = call.find(i == 0 ? "scales_h" : "scales_w");
    if (one && call[*one].isDouble()) scales[i] = call[*one].toDouble();
  }
  std::vector<int64_t> sizes;
  if (!call[1].isNone()) sizes = call[1].toIntVector();
  for (std::size_t i = sizes.size(); i < 2; ++i) {
    sizes.push_back(static_cast<int64_t>(static_cast<double>(x.size(static_cast<int64_t>(i) + 2)) * scales[i].value()));
  }
  Layout layout = layout_of(x);
  torch::Tensor part = part_of(x);
  for (std::size_t i = 0; i < 2; ++i) {
    const int64_t dim = static_cast<int64_t>(i) + 2;
    const int64_t inputs = x.size(dim);
    const double scale = scale_of(inputs, sizes[i], scales[i]);
    part = resample(part, layout, dim, sizes[i],
                    mixes ? linear(inputs, sizes[i], scale, align_corners) : nearest(inputs, scale), mixes);
    layout.sizes[i + 2] = sizes[i];
  }
  call.finish({make_divided(part, layout)});
}

}  // namespace

void add_resampling_rules(Rules& rules) {
  rules["upsample_nearest2d"] = rules["upsample_bilinear2d"] = call_upsample;
}

}  // namespace cohort::space
