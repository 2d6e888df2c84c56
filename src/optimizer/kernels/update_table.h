// The fused update kernels: one pass over parameter, gradient and slots. Pointers to them, one table an instruction
// set and one for CUDA's cards; all tables give the same bits. Parameters and gradients are numbers of the type P,
// slots and the arithmetic of the type T, which is P, or float for halves. It has only declarations, because it is
// compiled with other flags in each of the files.
#pragma once

#include <stdint.h>

#include "base/kernels/isa.h"
#include "base/kernels/reach.h"

namespace cohort::kernels {

// The numbers of half precision, by their bits.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// The numbers of an update that change from step to step, in the memory of kernels that are captured once and run again
// with other ones. The arguments of the rule's own kernel (AdamArgs, ...) lie behind them.
struct StepNumbers {
  double scale = 1.0;  // this and the following are fields of CommonArgs
  double shrink = 1.0;
  double keep = 0.0;
  double overwrites = 0.0;  // 1: overwrite; 0: not
};

// The arguments that all rules have.
struct CommonArgs {
  // How a gradient is read: multiplied, clipped, with L2 decay added.
  double scale = 1.0;
  double clip = 0.0;   // 0: not clipped
  double decay = 0.0;  // g += decay * p
  // Numbers in the memory of the kernel: another factor of the scale, and whether there is an update at all; null: 1,
  // and there is one.
  const double* factor = nullptr;
  const bool* only_if = nullptr;
  // What surrounds the rule's own arithmetic. The average of the parameter moves for calls that made no update; the
  // parameter shrinks (decoupled decay) and is updated; the average moves again.
  double shrink = 1.0;
  void* average = nullptr;  // numbers of the type T; null: there are none
  // With P a half: the parameters in float32, which the rule updates and of which those of P are roundings; null: the
  // rule updates the latter.
  float* master = nullptr;
  double keep_before = 1.0;  // average = keep * average + (1 - keep) * p
  double keep = 0.0;
  bool overwrite = false;  // p = average, at the end; with numbers: it may be so
  // The StepNumbers, and the arguments of the rule, are there; null: they are those that come with it. Not for passes.
  const StepNumbers* numbers = nullptr;
};

// v = keep * v + fresh * g; p -= learning_rate * v, with Nesterov's momentum p -= learning_rate * (ahead * g + momentum
// * v). In Keras' formulation the rate is in fresh and ahead, and learning_rate is 1.
struct SgdArgs {
  double learning_rate = 0.0;
  double momentum = 0.0;
  double keep = 0.0;
  double fresh = 1.0;
  double ahead = 1.0;
  bool nesterov = false;
};

// p = shrink * p - step_size * m / (sqrt(v) + epsilon), the corrections of the bias already in the two scalars.
struct AdamArgs {
  double beta_1 = 0.0;
  double beta_2 = 0.0;
  double step_size = 0.0;  // learning rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
  double epsilon = 0.0;    // LibTorch's formulation: epsilon * sqrt(1 - beta_2^t)
  double shrink = 1.0;     // decoupled decay: 1 - learning rate * weight decay
};

// d = fresh_rate * g / (sqrt(v + inside) + epsilon); b = momentum * b + d; p -= learning_rate * b. One of the two rates
// is 1, and one of inside and epsilon is 0.
struct RmspropArgs {
  double learning_rate = 1.0;
  double fresh_rate = 1.0;
  double rho = 0.0;
  double momentum = 0.0;
  double inside = 0.0;
  double epsilon = 0.0;
};

// p -= learning_rate * g / (sqrt(s + inside) + epsilon).
struct AdagradArgs {
  double learning_rate = 0.0;
  double inside = 0.0;
  double epsilon = 0.0;
};

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

// The most elements of a part of a layer.
constexpr int64_t kLayerPart = 4096;

// Layers are whole parameters whose steps depend on their norms. Each is cut into parts, which the blocks of a card
// take. All pointers are to the memory of the kernel.
struct LayerPart {
  int64_t begin;  // in the flat memory
  int64_t size;
  int64_t layer;
};
struct LayerShape {
  int64_t first_part;
  int64_t parts;
  int64_t decays;  // a boolean: weight decay applies
  int64_t adapts;  // a boolean: the trust ratio applies
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

struct Layers {
  const LayerPart* all_parts = nullptr;
  const LayerShape* all = nullptr;
  double* part_norms = nullptr;  // [part of all_parts][2]: squared, of the parameter and of its direction
  double* norms = nullptr;       // [layer of all][2]
  // Those that are updated.
  int64_t first = 0;
  int64_t count = 0;
  int64_t first_part = 0;
  int64_t parts = 0;
  int64_t origin = 0;  // the place in the flat memory that the pointers to parameters, gradients and slots point to
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
struct UpdateTable {
  // If slots are null the variant is the one without them (no momentum, no amsgrad, not centered).
  void (*sgd)(P* p, const P* g, T* buffer, int64_t n, const CommonArgs& in, const SgdArgs& args);
  void (*adam)(P* p, const P* g, T* m, T* v, T* v_max, int64_t n, const CommonArgs& in, const AdamArgs& args);
  void (*rmsprop)(P* p, const P* g, T* v, T* mean, T* buffer, int64_t n, const CommonArgs& in, const RmspropArgs& args);
  void (*adagrad)(P* p, const P* g, T* sum, int64_t n, const CommonArgs& in, const AdagradArgs& args);
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
  void (*adafactor_norms)(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<AdafactorArgs>& args);
  void (*lamb)(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<LambArgs>& args);
  void (*lars)(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<LarsArgs>& args);
  void (*adafactor)(const LayerMemory<P, T>& at, const Layers& layers, const LayerArgs<AdafactorArgs>& args);
};

struct UpdateTables {
  UpdateTable<float, float> f32;
  UpdateTable<double, double> f64;
};
struct HalfTables {
  UpdateTable<Half, float> f16;
  UpdateTable<BFloat16, float> bf16;
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

// The casts around the float32 kernels by which a CPU updates parameters of half precision.
template <typename P>
struct CastTable {
  void (*widen)(float* to, const P* from, int64_t n);
  void (*narrow)(P* to, const float* from, int64_t n);
  // Makes a master what the parameter is, where that is not its rounding.
  void (*follow)(float* master, const P* p, int64_t n);
};

struct CastTables {
  CastTable<Half> f16;
  CastTable<BFloat16> bf16;
};

namespace baseline {
extern const UpdateTables kUpdateTables;
extern const HalfTables kHalfTables;
extern const PassTables kPassTables;
extern const CastTables kCastTables;
}  // namespace baseline
namespace avx2 {
extern const UpdateTables kUpdateTables;
extern const PassTables kPassTables;
extern const CastTables kCastTables;
}  // namespace avx2
namespace avx512 {
extern const UpdateTables kUpdateTables;
extern const PassTables kPassTables;
extern const CastTables kCastTables;
}  // namespace avx512

namespace cuda {  // in builds with COHORT_CUDA_KERNELS
extern const UpdateTables kUpdateTables;
extern const HalfTables kHalfTables;
}  // namespace cuda

// Returns the tables of an instruction set, which the CPU must be able to run.
const UpdateTables& update_tables(Isa isa);
const PassTables& pass_tables(Isa isa);
const CastTables& cast_tables(Isa isa);
// Returns the fastest tables for a memory that kernels reach.
const UpdateTables& update_tables(Reach reach);
const HalfTables& half_tables(Reach reach);
// Returns the fastest tables of the host.
const PassTables& pass_tables();
const CastTables& cast_tables();

}  // namespace cohort::kernels
