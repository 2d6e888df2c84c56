// The fused update kernels: one pass over parameter, gradient and slots. What each compiled variant provides.
#pragma once

#include <cstdint>

namespace cohort::kernels {

// How the gradient is read: multiplied, clipped, with L2 decay added.
struct GradientArgs {
  double scale = 1.0;
  double clip = 0.0;   // 0: not clipped
  double decay = 0.0;  // g += decay * p
};

struct SgdArgs {
  double learning_rate = 0.0;
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
  bool first = false;  // the momentum buffer becomes the gradient
};

struct AdamArgs {
  double step_size = 0.0;       // learning rate / (1 - beta_1^t)
  double beta_1 = 0.0;
  double beta_2 = 0.0;
  double sqrt_correction = 1.0;  // sqrt(1 - beta_2^t)
  double epsilon = 0.0;
  double shrink = 1.0;           // AdamW: p *= 1 - lr * weight decay
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

struct LambArgs {
  double beta_1 = 0.0;
  double beta_2 = 0.0;
  double correction_1 = 1.0;  // 1 - beta_1^t
  double correction_2 = 1.0;
  double epsilon = 0.0;
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
  void (*sgd)(T* p, const T* g, T* buffer, int64_t n, GradientArgs in, SgdArgs args);
  void (*adam)(T* p, const T* g, T* m, T* v, T* v_max, int64_t n, GradientArgs in, AdamArgs args);
  void (*rmsprop)(T* p, const T* g, T* v, T* mean, T* buffer, int64_t n, GradientArgs in, RmspropArgs args);
  void (*adagrad)(T* p, const T* g, T* sum, int64_t n, GradientArgs in, AdagradArgs args);
  // Writes the direction over the gradient.
  void (*lamb_direction)(const T* p, T* g, T* m, T* v, int64_t n, GradientArgs in, LambArgs args);
  void (*lars)(T* p, const T* g, T* buffer, int64_t n, LarsArgs args);
  // g = the gradient as read; p -= rate * g.
  void (*read_gradient)(const T* p, T* g, int64_t n, GradientArgs in);
  void (*subtract)(T* p, const T* g, int64_t n, double rate);
};

struct UpdateTables {
  UpdateTable<float> f32;
  UpdateTable<double> f64;
};

UpdateTables update_tables_baseline();
UpdateTables update_tables_avx2();
UpdateTables update_tables_avx512();

// For this CPU.
const UpdateTables& update_tables();

}  // namespace cohort::kernels
