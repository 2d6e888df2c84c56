// A call has a window of what there is, the same on all ranks, because all know the sizes. Nearly always that is all.
#include "collective/process/engine_calls.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <numeric>

namespace cohort {

namespace {

// The elements from `begin` on that each rank has in a window.
struct EngineWindow {
  int64_t begin;
  std::vector<int64_t> sizes;  // [rank]
};

// Cuts what the ranks have, rank r counts[r] elements, into windows.
std::vector<EngineWindow> windows_of(const std::vector<int64_t>& counts, const torch::Tensor& like, int64_t most) {
  const auto bytes = static_cast<int64_t>(like.element_size() * counts.size());
  const int64_t longest = *std::max_element(counts.begin(), counts.end());
  const int64_t length = std::max<int64_t>(most / bytes, 1);
  std::vector<EngineWindow> windows;
  for (int64_t begin = 0; begin < longest; begin += length) {
    EngineWindow& window = windows.emplace_back(EngineWindow{.begin = begin});
    for (const int64_t count : counts) window.sizes.push_back(std::clamp<int64_t>(count - begin, 0, length));
  }
  return windows;
}

// Returns the part of one rank's elements that is in the window.
torch::Tensor part_of(const torch::Tensor& flat, const EngineWindow& window, std::size_t rank) {
  return flat.narrow(0, std::min(window.begin, flat.numel()), window.sizes[rank]);
}

Engine* engine_that_adds(Transport& transport, torch::ScalarType dtype) {
  Engine* const engine = transport.engine();
  return engine != nullptr && engine->adds(dtype) ? engine : nullptr;
}

std::vector<int64_t> times(std::vector<int64_t> counts, int64_t factor) {
  for (int64_t& count : counts) count *= factor;
  return counts;
}

}  // namespace

void engine_sum(Engine& engine, const torch::Tensor& flat, int64_t most) {
  for (const EngineWindow& window : windows_of({flat.numel()}, flat, most)) {
    engine.all_reduce(part_of(flat, window, 0));
  }
}

void engine_broadcast(Engine& engine, const torch::Tensor& tensor, int root, int64_t most) {
  const torch::Tensor flat = tensor.view({-1});
  for (const EngineWindow& window : windows_of({flat.numel()}, flat, most)) {
    engine.broadcast(part_of(flat, window, 0), root);
  }
}

torch::Tensor engine_pieces(Engine& engine, const std::vector<torch::Tensor>& pieces, int rank, int64_t most) {
  const auto me = static_cast<std::size_t>(rank);
  std::vector<int64_t> counts;
  for (const torch::Tensor& piece : pieces) counts.push_back(piece.numel());
  torch::Tensor sum = at::empty_like(pieces[me]);
  for (const EngineWindow& window : windows_of(counts, sum, most)) {
    std::vector<torch::Tensor> parts;
    for (std::size_t r = 0; r < pieces.size(); ++r) parts.push_back(part_of(pieces[r].view({-1}), window, r));
    engine.reduce_scatter(parts, part_of(sum.view({-1}), window, me));
  }
  return sum;
}

std::vector<torch::Tensor> engine_gather(Engine& engine, const torch::Tensor& own, const std::vector<int64_t>& rows,
                                         int64_t most) {
  const auto bytes = static_cast<int64_t>(own.element_size());
  std::vector<int64_t> shape = own.sizes().vec();
  const int64_t row = std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
  const std::vector<int64_t> counts = times(rows, row);
  shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const torch::Tensor whole = at::empty(shape, own.options());
  const std::vector<torch::Tensor> flat = whole.view({-1}).split_with_sizes(counts);
  const std::vector<EngineWindow> windows = windows_of(counts, own, most);
  for (const EngineWindow& window : windows) {
    // Rank r's part of the only window is where it belongs.
    const int64_t total = std::accumulate(window.sizes.begin(), window.sizes.end(), int64_t{0});
    const torch::Tensor all = windows.size() == 1 ? whole.view({-1}) : at::empty({total}, own.options());
    const auto mine = std::min(window.begin, own.numel());
    const int64_t length = *std::max_element(window.sizes.begin(), window.sizes.end());
    engine.all_gather(own.view({-1}).narrow(0, mine, std::min(length, own.numel() - mine)), times(window.sizes, bytes),
                      all);
    if (windows.size() == 1) break;
    const std::vector<torch::Tensor> came = all.split_with_sizes(window.sizes);
    for (std::size_t r = 0; r < came.size(); ++r) part_of(flat[r], window, r).copy_(came[r]);
  }
  return whole.split_with_sizes(rows);
}

void sum_on_host(Transport& transport, torch::Tensor& flat, Levels levels) {
  Engine* const engine = engine_that_adds(transport, flat.scalar_type());
  engine != nullptr ? engine_sum(*engine, flat) : exchange_sum(Peers(transport), flat, levels);
}

void broadcast_on_host(Transport& transport, const torch::Tensor& tensor, int root) {
  Engine* const engine = transport.engine();
  engine != nullptr ? engine_broadcast(*engine, tensor, root)
                    : exchange_broadcast(Peers(transport), bytes_of(tensor), root);
}

torch::Tensor sum_pieces_on_host(Transport& transport, const std::vector<torch::Tensor>& pieces, Levels levels) {
  Engine* const engine = engine_that_adds(transport, pieces.front().scalar_type());
  return engine != nullptr ? engine_pieces(*engine, pieces, transport.rank())
                           : exchange_pieces(Peers(transport), pieces, levels);
}

std::vector<torch::Tensor> gather_on_host(Transport& transport, const torch::Tensor& own,
                                          const std::vector<int64_t>& rows, Levels levels) {
  Engine* const engine = transport.engine();
  return engine != nullptr ? engine_gather(*engine, own, rows) : exchange_gather(Peers(transport), own, rows, levels);
}

}  // namespace cohort
