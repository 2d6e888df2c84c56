#include "base/tensor_piece.h"

#include <algorithm>
#include <numeric>

namespace cohort {

int64_t elements_in(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Runs runs_of(const std::vector<int64_t>& whole, const DimensionSlice& slice, const std::vector<int64_t>& order) {
  std::vector<int64_t> shape = whole;
  auto place = static_cast<std::size_t>(slice.dim);
  for (std::size_t i = 0; i < order.size(); ++i) {
    shape[i] = whole[static_cast<std::size_t>(order[i])];
    if (order[i] == slice.dim) place = i;
  }
  const auto dim = shape.begin() + static_cast<std::ptrdiff_t>(place);
  const auto product = [](auto first, auto last) {
    return std::accumulate(first, last, int64_t{1}, std::multiplies<>());
  };
  const int64_t inner = product(dim + 1, shape.end());
  const int64_t run = *dim / slice.runs * inner;
  Runs runs{.offset = slice.part * (run / slice.parts),
            .length = run / slice.parts,
            .stride = run,
            .count = product(shape.begin(), dim) * slice.runs};
  if (runs.length == run) {  // nothing lies between them
    runs.length *= runs.count;
    runs.count = 1;
  }
  if (runs.count == 1) runs.stride = 0;
  return runs;
}

// A first run that begins within, whole runs, and a last one that ends within.
std::vector<Runs> runs_between(const Runs& runs, int64_t begin, int64_t end) {
  std::vector<Runs> parts;
  while (begin < end) {
    const int64_t run = begin / runs.length;
    const int64_t within = begin % runs.length;
    const int64_t whole = within == 0 ? (end - begin) / runs.length : 0;
    Runs& part = parts.emplace_back(Runs{.offset = runs.offset + run * runs.stride + within,
                                         .length = std::min(runs.length - within, end - begin)});
    if (whole > 1) {
      part.stride = runs.stride;
      part.count = whole;
    }
    begin += part.size();
  }
  return parts;
}

void each_common(const Runs& first, const Runs& second, const VisitCommon& visit) {
  int64_t a = 0;
  int64_t b = 0;
  while (a < first.count && b < second.count) {
    const int64_t first_begin = first.offset + a * first.stride;
    const int64_t second_begin = second.offset + b * second.stride;
    const int64_t first_end = first_begin + first.length;
    const int64_t second_end = second_begin + second.length;
    const int64_t begin = std::max(first_begin, second_begin);
    const int64_t end = std::min(first_end, second_end);
    if (begin < end) {
      visit(a * first.length + begin - first_begin, b * second.length + begin - second_begin, end - begin);
    }
    if (first_end <= second_end) ++a;
    if (second_end <= first_end) ++b;
  }
}

std::vector<int64_t> order_of(c10::IntArrayRef shape, c10::IntArrayRef strides) {
  std::vector<int64_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [](c10::IntArrayRef list, int64_t i) { return list[static_cast<std::size_t>(i)]; };
  // The place of a dimension of one element does not matter, so it is where row-major order has it.
  std::vector<int64_t> long_ones;
  for (const int64_t dim : order) {
    if (at(shape, dim) != 1) long_ones.push_back(dim);
  }
  std::stable_sort(long_ones.begin(), long_ones.end(),
                   [&](int64_t a, int64_t b) { return at(strides, a) > at(strides, b); });
  auto next = long_ones.begin();
  for (int64_t& dim : order) {
    if (at(shape, dim) != 1) dim = *next++;
  }
  if (std::is_sorted(order.begin(), order.end())) order.clear();
  return order;
}

torch::Tensor in_shape(const torch::Tensor& flat, const WholeTensor& whole) {
  if (whole.order.empty()) return flat.view(whole.shape);
  std::vector<int64_t> sizes;
  std::vector<int64_t> back(whole.order.size());
  for (std::size_t i = 0; i < whole.order.size(); ++i) {
    sizes.push_back(whole.shape[static_cast<std::size_t>(whole.order[i])]);
    back[static_cast<std::size_t>(whole.order[i])] = static_cast<int64_t>(i);
  }
  return flat.view(sizes).permute(back);
}

TensorPiece whole_piece(const std::string& name, const torch::Tensor& tensor) {
  return {.name = name,
          .whole = {.dtype = tensor.scalar_type(), .shape = tensor.sizes().vec(), .order = {}},
          .runs = {.length = tensor.numel()},
          .values = tensor};
}

torch::Tensor TensorSource::read_whole(const std::string& name) const {
  const WholeTensor& whole = *find(name);
  return read(name, {.length = elements_in(whole.shape)}, {}).view(whole.shape);
}

TensorsByName::TensorsByName(const std::vector<std::pair<std::string, torch::Tensor>>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    entries_.emplace(name, Entry{.tensor = tensor, .whole = whole_piece(name, tensor).whole});
  }
}

std::vector<std::string> TensorsByName::names() const {
  std::vector<std::string> list;
  for (const auto& [name, entry] : entries_) list.push_back(name);
  return list;
}

const WholeTensor* TensorsByName::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second.whole;
}

torch::Tensor TensorsByName::read(const std::string& name, const Runs& runs, const std::vector<int64_t>& order) const {
  const torch::Tensor& tensor = entries_.at(name).tensor;
  const torch::Tensor flat = (order.empty() ? tensor : tensor.permute(order)).reshape({-1}).cpu();
  if (runs.count == 1) return flat.narrow(0, runs.offset, runs.length);
  const int64_t end = (runs.count - 1) * runs.stride + runs.length;
  return flat.narrow(0, runs.offset, end).unfold(0, runs.length, runs.stride).reshape({-1});
}

std::vector<int> writers_of(const std::vector<int64_t>& bytes, int workers) {
  std::vector<std::size_t> largest_first(bytes.size());
  std::iota(largest_first.begin(), largest_first.end(), std::size_t{0});
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  std::vector<int64_t> load(static_cast<std::size_t>(workers), 0);
  std::vector<int> writers(bytes.size());
  for (const std::size_t i : largest_first) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += bytes[i];
    writers[i] = static_cast<int>(least - load.begin());
  }
  return writers;
}

}  // namespace cohort
