// The fused update kernels: one pass over parameter, gradient and slots. Pointers to them, one table an instruction
// set; all tables give the same bits. Only declarations: this header is compiled with other flags in each of the three
// files.
#pragma once

#include <stdint.h>

#include "base/kernels/isa.h"

namespace cohort::kernels {

// How the gradient is read: multiplied, clipped, with L2 decay added.
struct GradientArgs {
  double scale = 1.0;
  double clip = 0.0;   // 0: not clipped
  double decay = 0.0;  // g += decay * p
};

struct SgdArgs {
  double learning_rate = 0.0;
  double momentum = 0.0;  // of the look ahead of Nesterov
  double keep = 0.0;      // v = keep * v + fresh * g
  double fresh = 1.0;
  bool nesterov = false;
};

// p = shrink * p - step_size * m / (sqrt(v) + epsilon), the corrections of the bias already in the two scalars.
struct AdamArgs {
  double beta_1 = 0.0;
  double beta_2 = 0.0;
  double step_size = 0.0;  // learning rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
  double epsilon = 0.0;    // epsilon * sqrt(1 - beta_2^t)
  double shrink = 1.0;     // AdamW: 1 - learning rate * weight decay
};

struct RmspropArgs {
  double learning_rate = 0.0;
  double rho = 0.0;
  double momentum = 0.0;
  double epsilon = 0.0;
};

struct AdagradArgs {
  double learning_rate = 0.0;
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

template <typename T>
struct UpdateTable {
  // Null slots: the variant without them (no momentum, no amsgrad, not centered).
  void (*sgd)(T* p, const T* g, T* buffer, int64_t n, const GradientArgs& in, const SgdArgs& args);
  void (*adam)(T* p, const T* g, T* m, T* v, T* v_max, int64_t n, const GradientArgs& in, const AdamArgs& args);
  void (*rmsprop)(T* p, const T* g, T* v, T* mean, T* buffer, int64_t n, const GradientArgs& in,
                  const RmspropArgs& args);
  void (*adagrad)(T* p, const T* g, T* sum, int64_t n, const GradientArgs& in, const AdagradArgs& args);
  // Writes the direction over the gradient.
  void (*lamb_direction)(const T* p, T* g, T* m, T* v, int64_t n, const GradientArgs& in, const LambArgs& args);
  void (*lars)(T* p, const T* g, T* buffer, int64_t n, const LarsArgs& args);
  // g = the gradient as read, without decay.
  void (*read_gradient)(T* g, int64_t n, const GradientArgs& in);
  // p -= rate * g.
  void (*subtract)(T* p, const T* g, int64_t n, double rate);
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

// The CPU must be able to run it.
const UpdateTables& update_tables(Isa isa);
// The fastest for this CPU.
const UpdateTables& update_tables();

}  // namespace cohort::kernels
