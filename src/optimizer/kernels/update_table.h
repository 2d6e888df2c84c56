// The fused update kernels: one pass over parameter, gradient and slots. Pointers to them, one table an instruction
// set and one for CUDA's cards; all tables give the same bits. It has only declarations, because it is compiled with
// other flags in each of the files.
#pragma once

#include <stdint.h>

#include "base/kernels/isa.h"
#include "base/kernels/reach.h"

namespace cohort::kernels {

// The arguments by which a gradient is read: multiplied, clipped, with L2 decay added.
struct GradientArgs {
  double scale = 1.0;
  double clip = 0.0;   // 0: not clipped
  double decay = 0.0;  // g += decay * p
  // Numbers in the memory of the kernel: another factor of the scale, and whether there is an update at all; null: 1,
  // and there is one.
  const double* factor = nullptr;
  const bool* only_if = nullptr;
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

// d = scale * m / (sqrt(v) + epsilon) + weight_decay * p, the corrections of the bias in the scalars.
struct LambArgs {
  double beta_1 = 0.0;
  double beta_2 = 0.0;
  double scale = 1.0;    // sqrt(1 - beta_2^t) / (1 - beta_1^t)
  double epsilon = 0.0;  // epsilon * sqrt(1 - beta_2^t)
  double weight_decay = 0.0;
};

struct LarsArgs {
  double learning_rate = 0.0;  // times the trust ratio
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
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

// mean = keep * mean + (1 - keep) * (share * sum + add).
struct BlendArgs {
  double keep = 0.0;
  double share = 1.0;
  double add = 0.0;
};

template <typename T>
struct UpdateTable {
  // If slots are null the variant is the one without them (no momentum, no amsgrad, not centered).
  void (*sgd)(T* p, const T* g, T* buffer, int64_t n, const GradientArgs& in, const SgdArgs& args);
  void (*adam)(T* p, const T* g, T* m, T* v, T* v_max, int64_t n, const GradientArgs& in, const AdamArgs& args);
  void (*rmsprop)(T* p, const T* g, T* v, T* mean, T* buffer, int64_t n, const GradientArgs& in,
                  const RmspropArgs& args);
  void (*adagrad)(T* p, const T* g, T* sum, int64_t n, const GradientArgs& in, const AdagradArgs& args);
  // Writes the direction over the gradient.
  void (*lamb_direction)(const T* p, T* g, T* m, T* v, int64_t n, const GradientArgs& in, const LambArgs& args);
  void (*lars)(T* p, const T* g, T* buffer, int64_t n, const LarsArgs& args);
  // Writes the step, without a rate, over the gradient.
  void (*lars_direction)(const T* p, T* g, T* buffer, int64_t n, const GradientArgs& in, const LarsArgs& args);
  void (*adadelta)(T* p, const T* g, T* squares, T* steps, int64_t n, const GradientArgs& in, const AdadeltaArgs& args);
  void (*adamax)(T* p, const T* g, T* m, T* u, int64_t n, const GradientArgs& in, const AdamaxArgs& args);
  void (*nadam)(T* p, const T* g, T* m, T* v, int64_t n, const GradientArgs& in, const NadamArgs& args);
  void (*ftrl)(T* p, const T* g, T* sum, T* linear, int64_t n, const GradientArgs& in, const FtrlArgs& args);
  void (*lion)(T* p, const T* g, T* m, int64_t n, const GradientArgs& in, const LionArgs& args);
  // Sets g to the gradient as read.
  void (*read_gradient)(const T* p, T* g, int64_t n, const GradientArgs& in);
  // p -= rate * g.
  void (*subtract)(T* p, const T* g, int64_t n, double rate);
  // sum += g^2.
  void (*add_squares)(T* sum, const T* g, int64_t n);
  void (*blend)(T* mean, const T* sum, int64_t n, const BlendArgs& args);
  // g /= sqrt(factor * squares).
  void (*divide_by_root)(T* g, const T* squares, int64_t n, double factor);
  // p *= factor; this and what follows only if the boolean is true or there is none (null).
  void (*scale)(T* p, int64_t n, double factor, const bool* only_if);
  // mean = momentum * mean + (1 - momentum) * p.
  void (*average)(T* mean, const T* p, int64_t n, double momentum, const bool* only_if);
  void (*copy)(T* to, const T* from, int64_t n, const bool* only_if);
};

struct UpdateTables {
  UpdateTable<float> f32;
  UpdateTable<double> f64;
};

namespace baseline {
extern const UpdateTables kUpdateTables;
}
namespace avx2 {
extern const UpdateTables kUpdateTables;
}
namespace avx512 {
extern const UpdateTables kUpdateTables;
}

namespace cuda {
extern const UpdateTables kUpdateTables;  // in builds with COHORT_CUDA_KERNELS
}

// Returns the tables of an instruction set, which the CPU must be able to run.
const UpdateTables& update_tables(Isa isa);
// Returns the fastest tables for a memory that kernels reach.
const UpdateTables& update_tables(Reach reach);

}  // namespace cohort::kernels
