// Adafactor on cards: the squares of a matrix are the outer product of their means by row and by column, so that a
// layer has several passes. Sums are added up in an order that the shapes alone decide, and stay in the memory of the
// kernels. See rules/adafactor.cpp.
#pragma once

#include "optimizer/kernels/half.h"
#include "wings/optimizers/optimizer/kernels/layer_loops.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

// Returns the layer that has a row, or a matrix, of all of them: the last one that does not begin after it.
COHORT_ON_DEVICE inline int64_t layer_with(const MatrixLayers& layers, int64_t Factored::*first, int64_t number) {
  int64_t low = layers.first;
  int64_t high = layers.first + layers.count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (layers.factored.all[middle].*first <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The reading of a layer's elements.
template <typename P, typename T>
struct LayerReader {
  COHORT_ON_DEVICE LayerReader(const LayerMemory<P, T>& memory, const MatrixLayers& layers, const CommonArgs* in,
                               int64_t number)
      : args(in[layers.all[number].decays != 0 ? 1 : 0]),
        read(args),
        around(args),
        begin(layers.factored.all[number].begin - layers.origin),
        p(memory.p),
        g(memory.g + begin) {}

  // Returns the gradient of an element of the layer as it is read.
  COHORT_ON_DEVICE T operator()(int64_t i) const {
    T none = T(0);
    return read(widen(g[i]), around.before(weight_at(p, begin + i, args), none));
  }

  const CommonArgs& args;
  Reader<T, true> read;
  Surrounding<T, false> around;
  int64_t begin;
  P* p;        // not from `begin`, as the master is not
  const P* g;  // from `begin`
};

// Moves a mean by the sum of so many squares.
template <typename T>
COHORT_ON_DEVICE inline void move_mean(T& mean, double sum, int64_t terms, const AdafactorArgs& args) {
  const T share = static_cast<T>(1.0 / static_cast<double>(terms));
  mean = static_cast<T>(args.keep) * mean +
         static_cast<T>(1.0 - args.keep) * (share * static_cast<T>(sum) + static_cast<T>(args.epsilon_1));
}

// Moves the means of the rows, which are numbered over all layers.
template <typename P, typename T>
COHORT_LOOP row_means_loop(int64_t rows, LayerMemory<P, T> at, MatrixLayers layers, LayerArgs<AdafactorArgs> args) {
  if (leaves_out(args.in[0])) return;
  COHORT_EACH_ROW(n, rows) {
    const int64_t number = layer_with(layers, &Factored::first_row, layers.factored.first_row + n);
    const Factored layer = layers.factored.all[number];
    const LayerReader<P, T> read(at, layers, args.in, number);
    const int64_t row = layers.factored.first_row + n - layer.first_row;
    RowSum sum;
    COHORT_EACH_IN_ROW(e, layer.columns) {
      const auto d = static_cast<double>(read(row * layer.columns + e));
      sum.add(e, d * d);
    }
    const double total = sum.total();
    COHORT_ONCE move_mean(at.slots[0][read.begin + row], total, layer.columns, args.rule[0]);
  }
}

// Adds up the squares of the columns of strips: some rows of some columns of a matrix.
template <typename P, typename T>
COHORT_LOOP strip_sums_loop(int64_t strips, LayerMemory<P, T> at, MatrixLayers layers, LayerArgs<AdafactorArgs> args) {
  if (leaves_out(args.in[0])) return;
  COHORT_EACH_ROW(n, strips) {
    const Strip strip = layers.factored.strips[layers.factored.first_strip + n];
    const int64_t columns = layers.factored.all[strip.layer].columns;
    const LayerReader<P, T> read(at, layers, args.in, strip.layer);
    COHORT_EACH_IN_ROW(c, strip.columns) {
      double sum = 0.0;
      for (int64_t row = strip.row; row < strip.row + strip.rows; ++row) {
        const auto d = static_cast<double>(read(row * columns + strip.column + c));
        sum += d * d;
      }
      layers.factored.sums[strip.sums + c] = sum;
    }
  }
}

// Moves the means of the columns, by the strips that lie one below the other.
template <typename P, typename T>
COHORT_LOOP column_means_loop(int64_t tiles, LayerMemory<P, T> at, MatrixLayers layers, LayerArgs<AdafactorArgs> args) {
  if (leaves_out(args.in[0])) return;
  COHORT_EACH_ROW(n, tiles) {
    const Tile tile = layers.factored.tiles[layers.factored.first_tile + n];
    const Factored layer = layers.factored.all[tile.layer];
    T* const means = at.slots[1] + layer.begin - layers.origin + tile.mean;
    COHORT_EACH_IN_ROW(c, tile.columns) {
      double sum = 0.0;
      for (int64_t s = 0; s < tile.strips; ++s) sum += layers.factored.sums[tile.sums + s * tile.columns + c];
      move_mean(means[c], sum, layer.rows, args.rule[0]);
    }
  }
}

// Leaves the mean of the means of each matrix's rows.
template <typename P, typename T>
COHORT_LOOP matrix_means_loop(int64_t matrices, LayerMemory<P, T> at, MatrixLayers layers,
                              LayerArgs<AdafactorArgs> args) {
  if (leaves_out(args.in[0])) return;
  COHORT_EACH_ROW(n, matrices) {
    const int64_t matrix = layers.factored.first_matrix + n;
    const Factored layer = layers.factored.all[layer_with(layers, &Factored::first_matrix, matrix)];
    const T* const means = at.slots[0] + layer.begin - layers.origin + (matrix - layer.first_matrix) * layer.rows;
    RowSum sum;
    COHORT_EACH_IN_ROW(r, layer.rows) sum.add(r, static_cast<double>(means[r]));
    const double total = sum.total();
    COHORT_ONCE layers.factored.means[matrix] = total / static_cast<double>(layer.rows);
  }
}

// The directions of a layer's elements: gradients divided by the roots of their squares.
template <typename T>
struct FactoredDirection {
  COHORT_ON_DEVICE FactoredDirection(const MatrixLayers& layers, const Factored& layer, T* const* slots,
                                     const AdafactorArgs& args)
      : layer(layer),
        rows(slots[0] + layer.begin - layers.origin),
        columns(slots[1] + layer.begin - layers.origin),
        means(layers.factored.means + layer.first_matrix),
        args(args) {}

  // Returns the direction of element i. A vector has a mean for each one, which moves.
  COHORT_ON_DEVICE T operator()(int64_t i, T d, T& mean) const {
    if (layer.rows == 0) {
      move_mean(mean, static_cast<double>(d * d), 1, args);
      return d / root_of_estimate(mean);
    }
    const int64_t row = i / layer.columns;
    const int64_t matrix = row / layer.rows;
    const T factor = static_cast<T>(static_cast<double>(rows[row]) / means[matrix]);
    return d / root_of_estimate(factor * columns[matrix * layer.columns + i % layer.columns]);
  }

  const Factored& layer;
  const T* rows;
  const T* columns;
  const double* means;
  const AdafactorArgs& args;
};

// Leaves the norms of the parts, as layer_norms_loop() does.
template <typename P, typename T>
COHORT_LOOP factored_norms_loop(int64_t parts, LayerMemory<P, T> at, MatrixLayers layers,
                                LayerArgs<AdafactorArgs> args) {
  if (leaves_out(args.in[0])) return;
  COHORT_EACH_ROW(n, parts) {
    const int64_t number = layers.first_part + n;
    const LayerPart part = layers.all_parts[number];
    const Factored layer = layers.factored.all[part.layer];
    const LayerReader<P, T> read(at, layers, args.in, part.layer);
    const FactoredDirection<T> direction(layers, layer, at.slots, args.rule[0]);
    RowSum weights;
    RowSum lengths;
    COHORT_EACH_IN_ROW(e, part.size) {
      const int64_t i = part.begin - layer.begin + e;
      T none = T(0);
      T mean = layer.rows == 0 ? at.slots[0][read.begin + i] : T(0);
      const auto weight = static_cast<double>(read.around.before(weight_at(read.p, read.begin + i, read.args), none));
      const auto length = static_cast<double>(direction(i, read(i), mean));
      weights.add(e, weight * weight);
      lengths.add(e, length * length);
    }
    const double weight = weights.total();
    const double length = lengths.total();
    COHORT_ONCE {
      layers.part_norms[2 * number] = weight;
      layers.part_norms[2 * number + 1] = length;
    }
  }
}

// Returns the rate of a layer: relative to the size of the parameters, and shorter for long directions.
COHORT_ON_DEVICE inline double factored_rate(const double* norms, int64_t size, const AdafactorArgs& args) {
  const double scale = root(norms[0] / static_cast<double>(size));
  const double length = root(norms[1] / static_cast<double>(size)) / args.clip_threshold;
  return args.learning_rate * (scale > args.epsilon_2 ? scale : args.epsilon_2) / (length > 1.0 ? length : 1.0);
}

template <typename P, typename T, bool kAverages>
COHORT_LOOP factored_update_loop(int64_t parts, LayerMemory<P, T> at, MatrixLayers layers,
                                 LayerArgs<AdafactorArgs> args) {
  if (leaves_out(args.in[0])) return;
  COHORT_EACH_ROW(n, parts) {
    const LayerPart part = layers.all_parts[layers.first_part + n];
    const Factored layer = layers.factored.all[part.layer];
    const LayerReader<P, T> read(at, layers, args.in, part.layer);
    const Surrounding<T, kAverages> around(read.args);
    const FactoredDirection<T> direction(layers, layer, at.slots, args.rule[0]);
    const T rate = static_cast<T>(factored_rate(layers.norms + 2 * part.layer, layer.size, args.rule[0]));
    T* const average = static_cast<T*>(read.args.average) + (kAverages ? read.begin : 0);
    COHORT_EACH_IN_ROW(e, part.size) {
      const int64_t i = part.begin - layer.begin + e;
      T moving = kAverages ? average[i] : T(0);
      T mean = layer.rows == 0 ? at.slots[0][read.begin + i] : T(0);
      T x = around.before(weight_at(read.p, read.begin + i, read.args), moving);
      x -= rate * direction(i, read(i), mean);
      if (layer.rows == 0) at.slots[0][read.begin + i] = mean;
      around.after(x, moving);
      store_at(kAverages && read.args.overwrite ? moving : x, read.p, read.begin + i, read.args);
      if constexpr (kAverages) average[i] = moving;
    }
  }
}

template <typename P, typename T>
void adafactor_norms(const LayerMemory<P, T>& at, const MatrixLayers& layers, const LayerArgs<AdafactorArgs>& args) {
  const FactoredLayers& factored = layers.factored;
  run_lanes<row_means_loop<P, T>>(factored.rows, at, layers, args);
  run_lanes<strip_sums_loop<P, T>>(factored.num_strips, at, layers, args);
  run_lanes<column_means_loop<P, T>>(factored.num_tiles, at, layers, args);
  run_lanes<matrix_means_loop<P, T>>(factored.matrices, at, layers, args);
  run_lanes<factored_norms_loop<P, T>>(layers.parts, at, layers, args);
}

template <typename P, typename T>
void adafactor(const LayerMemory<P, T>& at, const MatrixLayers& layers, const LayerArgs<AdafactorArgs>& args) {
  return args.in[0].average != nullptr ? run_lanes<factored_update_loop<P, T, true>>(layers.parts, at, layers, args)
                                       : run_lanes<factored_update_loop<P, T, false>>(layers.parts, at, layers, args);
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
