// The tables of the kernels of this wing's rules, as those of optimizer/kernels/update_table.h.
#pragma once

#include "optimizer/kernels/update_table.h"

namespace cohort::kernels {

// d = scale * m / (sqrt(v) + epsilon) + weight_decay * p, the corrections of the bias in the scalars; p -=
// learning_rate
// * d.
struct LambArgs {
  double learning_rate = 0.0;  // times the trust ratio
  double beta_1 = 0.0;
  double beta_2 = 0.0;
  double scale = 1.0;    // sqrt(1 - beta_2^t) / (1 - beta_1^t)
  double epsilon = 0.0;  // epsilon * sqrt(1 - beta_2^t)
  double weight_decay = 0.0;
};

// With g the gradient as read, v = momentum * v + learning_rate * (g + weight_decay * p); p -= v. Otherwise (not
// classic) the rate is no part of v and there is no weight_decay; p -= learning_rate * v.
struct LarsArgs {
  double learning_rate = 0.0;  // times the trust ratio
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool classic = true;
};

struct AdadeltaArgs {
  double learning_rate = 0.0;
  double rho = 0.0;
  double epsilon = 0.0;
};

struct AdamaxArgs {
  double beta_1 = 0.0;
  double beta_2 = 0.0;
  double step_size = 0.0;  // learning rate / (1 - beta_1^t)
  double epsilon = 0.0;
};

// p -= (of_mean * m + of_gradient * g) / (sqrt(v) + epsilon), the corrections of the bias in the scalars.
struct NadamArgs {
  double beta_1 = 0.0;
  double beta_2 = 0.0;
  double of_mean = 0.0;
  double of_gradient = 0.0;
  double epsilon = 0.0;
};

// The symbols of FtrlOptions; exponent is -learning_rate_power, and twice_l2 has beta / learning rate in it.
struct FtrlArgs {
  double learning_rate = 0.0;
  double exponent = 0.5;
  double l1 = 0.0;
  double twice_l2 = 0.0;
  double twice_shrinkage = 0.0;
};

struct LionArgs {
  double learning_rate = 0.0;
  double beta_1 = 0.0;
  double beta_2 = 0.0;
};

// The squares of a matrix are row * column / the mean of the rows, of means with d = keep * d + (1 - keep) * (the mean
// of g^2 + epsilon_1); p -= learning_rate * max(epsilon_2, |p|) * d / max(1, |d| / clip_threshold) with d = g /
// sqrt(squares) and norms divided by the root of the size.
struct AdafactorArgs {
  double learning_rate = 0.0;
  double keep = 0.0;
  double epsilon_1 = 0.0;
  double epsilon_2 = 0.0;
  double clip_threshold = 1.0;
};

// mean = keep * mean + (1 - keep) * (share * sum + add).
struct BlendArgs {
  double keep = 0.0;
  double share = 1.0;
  double add = 0.0;
};

// The trust ratio of a parameter: coefficient * |p| / (|d| + decay * |p| + epsilon), and 1 where a norm is 0.
struct TrustArgs {
  double coefficient = 1.0;
  double decay = 0.0;
  double epsilon = 0.0;
};

// Layers of Adafactor: matrices one after the other, whose slots have the means of the squares by row and by column at
// their beginnings; a vector has one for each element in the first slot, and `rows` is 0.
struct Factored {
  int64_t begin;  // in the flat memory
  int64_t size;
  int64_t rows;  // of each matrix
  int64_t columns;
  int64_t first_row;  // its place among the rows of all layers
  int64_t first_matrix;
};
// Some rows of some columns of a matrix, whose squares are added up by column.
struct Strip {
  int64_t layer;
  int64_t row;  // its place in the layer, as if that were one matrix
  int64_t rows;
  int64_t column;
  int64_t columns;
  int64_t sums;  // the place of its sums in FactoredLayers::sums
};
// The same columns of all strips of a matrix.
struct Tile {
  int64_t layer;
  int64_t mean;  // the place of the first column's mean in the layer's slot
  int64_t columns;
  int64_t strips;
  int64_t sums;  // the place of the first strip's sums; those of the others follow
};
struct FactoredLayers {
  const Factored* all = nullptr;
  const Strip* strips = nullptr;
  const Tile* tiles = nullptr;
  double* sums = nullptr;
  double* means = nullptr;  // [matrix]: the means of all squares
  // Those of the layers that are updated.
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_strip = 0;
  int64_t num_strips = 0;
  int64_t first_tile = 0;
  int64_t num_tiles = 0;
  int64_t first_matrix = 0;
  int64_t matrices = 0;
};

// The most rows and columns of a strip.
constexpr int64_t kStripRows = 64;
constexpr int64_t kStripColumns = 256;

// Layers with the tables of their matrices.
struct MatrixLayers : Layers {
  FactoredLayers factored = {};
};

// The arguments for layers without and with weight decay. Each of the two may have numbers.
template <typename RuleArgs>
struct LayerArgs {
  CommonArgs in[2];
  RuleArgs rule[2];
  TrustArgs trust;
};

template <typename P, typename T>
struct LayerMemory {
  P* p = nullptr;
  const P* g = nullptr;
  T* slots[2] = {};
};

template <typename P, typename T>
struct MoreTable {
  void (*adadelta)(P* p, const P* g, T* squares, T* steps, int64_t n, const CommonArgs& in, const AdadeltaArgs& args);
  void (*adamax)(P* p, const P* g, T* m, T* u, int64_t n, const CommonArgs& in, const AdamaxArgs& args);
  void (*nadam)(P* p, const P* g, T* m, T* v, int64_t n, const CommonArgs& in, const NadamArgs& args);
  void (*ftrl)(P* p, const P* g, T* sum, T* linear, int64_t n, const CommonArgs& in, const FtrlArgs& args);
  void (*lion)(P* p, const P* g, T* m, int64_t n, const CommonArgs& in, const LionArgs& args);
  // Does what surrounds a rule alone.
  void (*surround)(P* p, int64_t n, const CommonArgs& in);
  // The updates of layers in three steps: the norms of parts, those of layers, and the parameters. The first one only
  // reads parameters, gradients and slots.
  void (*lamb_norms)(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<LambArgs>& args);
  void (*lars_norms)(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<LarsArgs>& args);
  void (*add_norms)(const Layers& layers);
  void (*adafactor_norms)(const LayerMemory<P, T>& at, const MatrixLayers& layers,
                          const LayerArgs<AdafactorArgs>& args);
  void (*lamb)(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<LambArgs>& args);
  void (*lars)(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<LarsArgs>& args);
  void (*adafactor)(const LayerMemory<P, T>& at, const MatrixLayers& layers, const LayerArgs<AdafactorArgs>& args);
};

struct MoreTables {
  MoreTable<float, float> f32;
  MoreTable<double, double> f64;
};
struct MoreHalfTables {
  MoreTable<Half, float> f16;
  MoreTable<BFloat16, float> bf16;
};

// The passes of rules that a CPU updates in several, because they need norms or means in between.
template <typename T>
struct PassTable {
  // Writes the direction over the gradient.
  void (*lamb_direction)(const T* p, T* g, T* m, T* v, int64_t n, const CommonArgs& in, const LambArgs& args);
  void (*lars)(T* p, const T* g, T* buffer, int64_t n, const LarsArgs& args);
  // Writes the step, without a rate, over the gradient.
  void (*lars_direction)(const T* p, T* g, T* buffer, int64_t n, const CommonArgs& in, const LarsArgs& args);
  // Sets g to the gradient as read.
  void (*read_gradient)(const T* p, T* g, int64_t n, const CommonArgs& in);
  // p -= rate * g.
  void (*subtract)(T* p, const T* g, int64_t n, double rate);
  // sum += g^2.
  void (*add_squares)(T* sum, const T* g, int64_t n);
  void (*blend)(T* mean, const T* sum, int64_t n, const BlendArgs& args);
  // g /= sqrt(factor * squares).
  void (*divide_by_root)(T* g, const T* squares, int64_t n, double factor);
  // p *= factor.
  void (*scale)(T* p, int64_t n, double factor);
  // mean = momentum * mean + (1 - momentum) * p.
  void (*average)(T* mean, const T* p, int64_t n, double momentum);
  void (*copy)(T* to, const T* from, int64_t n);
};

struct PassTables {
  PassTable<float> f32;
  PassTable<double> f64;
};

namespace baseline {
extern const MoreTables kMoreTables;
extern const MoreHalfTables kMoreHalfTables;
extern const PassTables kPassTables;
}  // namespace baseline
namespace avx2 {
extern const MoreTables kMoreTables;
extern const PassTables kPassTables;
}  // namespace avx2
namespace avx512 {
extern const MoreTables kMoreTables;
extern const PassTables kPassTables;
}  // namespace avx512

namespace cuda {  // in builds with COHORT_CUDA_KERNELS
extern const MoreTables kMoreTables;
extern const MoreHalfTables kMoreHalfTables;
}  // namespace cuda

// Returns the tables of an instruction set, which the CPU must be able to run.
const MoreTables& more_tables(Isa isa);
const PassTables& pass_tables(Isa isa);
// Returns the fastest tables for a memory that kernels reach.
const MoreTables& more_tables(Reach reach);
const MoreHalfTables& more_half_tables(Reach reach);
// Returns the fastest passes of the host.
const PassTables& pass_tables();

}  // namespace cohort::kernels
