// The fused update kernels: one pass over parameter, gradient and slots. Pointers to them, one table an instruction
// set and one for CUDA's cards; all tables give the same bits. Parameters and gradients are numbers of the type P,
// slots and the arithmetic of the type T, which is P, or float for halves. It has only declarations, because it is
// compiled with other flags in each of the files.
#pragma once

#include <stdint.h>

#include "ops/kernels/isa.h"
#include "ops/kernels/reach.h"

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
  const void* own = nullptr;  // the rule's own tables of the layers (UpdateRule::own_tables); null: it has none
};

template <typename P, typename T>
struct UpdateTable {
  // If slots are null the variant is the one without them (no momentum, no amsgrad, not centered).
  void (*sgd)(P* p, const P* g, T* buffer, int64_t n, const CommonArgs& in, const SgdArgs& args);
  void (*adam)(P* p, const P* g, T* m, T* v, T* v_max, int64_t n, const CommonArgs& in, const AdamArgs& args);
  void (*rmsprop)(P* p, const P* g, T* v, T* mean, T* buffer, int64_t n, const CommonArgs& in, const RmspropArgs& args);
  void (*adagrad)(P* p, const P* g, T* sum, int64_t n, const CommonArgs& in, const AdagradArgs& args);
};

struct UpdateTables {
  UpdateTable<float, float> f32;
  UpdateTable<double, double> f64;
};
struct HalfTables {
  UpdateTable<Half, float> f16;
  UpdateTable<BFloat16, float> bf16;
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
extern const CastTables kCastTables;
}  // namespace baseline
namespace avx2 {
extern const UpdateTables kUpdateTables;
extern const CastTables kCastTables;
}  // namespace avx2
namespace avx512 {
extern const UpdateTables kUpdateTables;
extern const CastTables kCastTables;
}  // namespace avx512

namespace cuda {  // in builds with COHORT_CUDA_KERNELS
extern const UpdateTables kUpdateTables;
extern const HalfTables kHalfTables;
}  // namespace cuda

// Returns the tables of an instruction set, which the CPU must be able to run.
const UpdateTables& update_tables(Isa isa);
const CastTables& cast_tables(Isa isa);
// Returns the fastest tables for a memory that kernels reach.
const UpdateTables& update_tables(Reach reach);
const HalfTables& half_tables(Reach reach);
// Returns the fastest casts of the host.
const CastTables& cast_tables();

}  // namespace cohort::kernels
