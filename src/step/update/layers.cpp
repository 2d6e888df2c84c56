// The tables lie in tensors of 64-bit integers, whose pointers kernels take.
#include "step/update/layers.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "device/backend.h"
#include "step/update/tensors.h"

namespace cohort {

namespace {

constexpr int64_t kPartNumbers = 3;
constexpr int64_t kLayerNumbers = 4;
static_assert(sizeof(kernels::LayerPart) == kPartNumbers * sizeof(int64_t));
static_assert(sizeof(kernels::LayerShape) == kLayerNumbers * sizeof(int64_t));

torch::Tensor table_of(const std::vector<int64_t>& numbers, torch::Device device) {
  return at::tensor(numbers, torch::kLong).to(device);
}

}  // namespace

bool LayerTables::serve(const UpdateRule& rule, torch::ScalarType dtype, torch::Device device) {
  return rule.one_by_one() && kernels_reach(dtype, device);
}

LayerTables::LayerTables(const UpdateRule& rule, std::vector<Place> places, torch::Device device)
    : places_(std::move(places)) {
  std::vector<int64_t> parts;
  std::vector<int64_t> layers;
  for (std::size_t p = 0; p < places_.size(); ++p) {
    const Place& place = places_[p];
    const int64_t first = static_cast<int64_t>(parts.size()) / kPartNumbers;
    first_part_.push_back(first);
    for (int64_t at = 0; at < place.size; at += kernels::kLayerPart) {
      parts.insert(parts.end(),
                   {place.begin + at, std::min(kernels::kLayerPart, place.size - at), static_cast<int64_t>(p)});
    }
    const int64_t count = static_cast<int64_t>(parts.size()) / kPartNumbers - first;
    layers.insert(layers.end(), {first, count, place.treatment.decay ? 1 : 0, place.treatment.adapt ? 1 : 0});
  }
  first_part_.push_back(static_cast<int64_t>(parts.size()) / kPartNumbers);
  parts_ = table_of(parts, device);
  layers_ = table_of(layers, device);
  const auto options = at::TensorOptions().dtype(torch::kDouble).device(device);
  part_norms_ = at::zeros({first_part_.back(), 2}, options);
  norms_ = at::zeros({static_cast<int64_t>(places_.size()), 2}, options);
  own_ = rule.own_tables(places_, device);
}

bool LayerTables::takes(int64_t begin) const {
  const Range range = between(begin, begin + 1);  // empty ones begin there, too
  return range.first < range.end && places_[range.end - 1].is_taken;
}

LayerTables::Range LayerTables::between(int64_t begin, int64_t end) const {
  const auto number = [&](int64_t element) {
    const auto found = std::lower_bound(places_.begin(), places_.end(), element,
                                        [](const Place& place, int64_t value) { return place.begin < value; });
    return static_cast<std::size_t>(found - places_.begin());
  };
  return {.first = number(begin), .end = number(end)};
}

std::vector<torch::Tensor> LayerTables::memory() const {
  std::vector<torch::Tensor> all{parts_, layers_, part_norms_, norms_};
  all.insert(all.end(), own_.memory.begin(), own_.memory.end());
  return all;
}

kernels::Layers LayerTables::layers(int64_t begin, int64_t end) const {
  const Range range = between(begin, end);
  return {.all_parts = static_cast<const kernels::LayerPart*>(parts_.data_ptr()),
          .all = static_cast<const kernels::LayerShape*>(layers_.data_ptr()),
          .part_norms = part_norms_.data_ptr<double>(),
          .norms = norms_.data_ptr<double>(),
          .first = static_cast<int64_t>(range.first),
          .count = static_cast<int64_t>(range.end - range.first),
          .first_part = first_part_[range.first],
          .parts = first_part_[range.end] - first_part_[range.first],
          .origin = begin,
          .own = own_.tables.get()};
}

}  // namespace cohort
