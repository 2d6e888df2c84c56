// The tables lie in tensors of 64-bit integers, whose pointers kernels take.
#include "wings/optimizers/optimizer/factored.h"

#include <ATen/Functions.h>

#include <algorithm>

namespace cohort {

namespace {

constexpr int64_t kFactoredNumbers = 6;
constexpr int64_t kStripNumbers = 6;
constexpr int64_t kTileNumbers = 5;
static_assert(sizeof(kernels::Factored) == kFactoredNumbers * sizeof(int64_t));
static_assert(sizeof(kernels::Strip) == kStripNumbers * sizeof(int64_t));
static_assert(sizeof(kernels::Tile) == kTileNumbers * sizeof(int64_t));

// Cuts the columns of one matrix into tiles, and these into strips.
struct Cutter {
  int64_t layer = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<int64_t>& strips;
  std::vector<int64_t>& tiles;
  int64_t& sums;

  void cut(int64_t matrix) const {
    for (int64_t column = 0; column < columns; column += kernels::kStripColumns) {
      const int64_t width = std::min(kernels::kStripColumns, columns - column);
      const int64_t count = (rows + kernels::kStripRows - 1) / kernels::kStripRows;
      tiles.insert(tiles.end(), {layer, matrix * columns + column, width, count, sums});
      for (int64_t row = 0; row < rows; row += kernels::kStripRows) {
        const int64_t height = std::min(kernels::kStripRows, rows - row);
        strips.insert(strips.end(), {layer, matrix * rows + row, height, column, width, sums});
        sums += width;
      }
    }
  }
};

torch::Tensor table_on(const std::vector<int64_t>& numbers, torch::Device device) {
  return at::tensor(numbers, torch::kLong).to(device);
}

}  // namespace

FactoredTables::FactoredTables(const std::vector<LayerPlace>& places, torch::Device device) {
  std::vector<int64_t> layers;
  std::vector<int64_t> strips;
  std::vector<int64_t> tiles;
  int64_t sums = 0;
  Firsts next;
  for (std::size_t p = 0; p < places.size(); ++p) {
    const LayerPlace& place = places[p];
    const std::vector<int64_t>& shape = place.shape;
    const bool is_vector = shape.size() < 2 || place.size == 0 || !place.is_taken;
    const int64_t rows = is_vector ? 0 : shape[shape.size() - 2];
    const int64_t columns = is_vector ? place.size : shape.back();
    const int64_t matrices = is_vector ? 0 : place.size / (rows * columns);
    layers.insert(layers.end(), {place.begin, place.size, rows, columns, next.row, next.matrix});
    firsts_.push_back(next);
    const Cutter cutter{static_cast<int64_t>(p), rows, columns, strips, tiles, sums};
    for (int64_t matrix = 0; matrix < matrices; ++matrix) cutter.cut(matrix);
    next = {.row = next.row + matrices * rows,
            .strip = static_cast<int64_t>(strips.size()) / kStripNumbers,
            .tile = static_cast<int64_t>(tiles.size()) / kTileNumbers,
            .matrix = next.matrix + matrices};
  }
  firsts_.push_back(next);
  layers_ = table_on(layers, device);
  strips_ = table_on(strips, device);
  tiles_ = table_on(tiles, device);
  const auto options = at::TensorOptions().dtype(torch::kDouble).device(device);
  sums_ = at::zeros({sums}, options);
  means_ = at::zeros({next.matrix}, options);
}

kernels::FactoredLayers FactoredTables::layers(std::size_t first, std::size_t end) const {
  const Firsts& from = firsts_[first];
  const Firsts& to = firsts_[end];
  return {.all = static_cast<const kernels::Factored*>(layers_.data_ptr()),
          .strips = static_cast<const kernels::Strip*>(strips_.data_ptr()),
          .tiles = static_cast<const kernels::Tile*>(tiles_.data_ptr()),
          .sums = sums_.data_ptr<double>(),
          .means = means_.data_ptr<double>(),
          .first_row = from.row,
          .rows = to.row - from.row,
          .first_strip = from.strip,
          .num_strips = to.strip - from.strip,
          .first_tile = from.tile,
          .num_tiles = to.tile - from.tile,
          .first_matrix = from.matrix,
          .matrices = to.matrix - from.matrix};
}

}  // namespace cohort
