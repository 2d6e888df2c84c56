// The update kernels' one source, compiled once an instruction set (COHORT_ISA) with other flags; see
// base/kernels/vector_impl.h for why it uses nothing of the standard library. What varies inside a loop is a template
// argument, so that every loop is straight vector code. The formulas are those of torch/optim.
#include "optimizer/kernels/update_table.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

inline float root(float x) {
  return __builtin_sqrtf(x);
}
inline double root(double x) {
  return __builtin_sqrt(x);
}

// GradientArgs in the parameters' type. A NaN passes the clip, because both comparisons are false.
template <typename T, bool kDecay>
struct Reader {
  explicit Reader(const GradientArgs& in)
      : scale(static_cast<T>(in.scale)),
        high(in.clip > 0.0 ? static_cast<T>(in.clip) : static_cast<T>(__builtin_inf())),
        low(-high),
        decay(static_cast<T>(in.decay)) {}

  T operator()(T g, T p) const {
    T x = g * scale;
    x = x < low ? low : x;
    x = x > high ? high : x;
    if constexpr (kDecay) x += decay * p;
    return x;
  }

  T scale;
  T high;
  T low;
  T decay;
};

enum class Momentum { kNone, kHeavyBall, kNesterov };

template <typename T, Momentum kMomentum, bool kDecay>
void sgd_loop(T* __restrict p, const T* __restrict g, T* __restrict buffer, int64_t n, const GradientArgs& in,
              const SgdArgs& args) {
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T keep = static_cast<T>(args.keep);
  const T fresh = static_cast<T>(args.fresh);
  const T momentum = static_cast<T>(args.momentum);
  for (int64_t i = 0; i < n; ++i) {
    T d = read(g[i], p[i]);
    if constexpr (kMomentum != Momentum::kNone) {
      const T velocity = keep * buffer[i] + fresh * d;
      buffer[i] = velocity;
      d = kMomentum == Momentum::kNesterov ? d + momentum * velocity : velocity;
    }
    p[i] -= rate * d;
  }
}

template <typename T, bool kDecay>
void sgd_with(T* p, const T* g, T* buffer, int64_t n, const GradientArgs& in, const SgdArgs& args) {
  if (buffer == nullptr) return sgd_loop<T, Momentum::kNone, kDecay>(p, g, buffer, n, in, args);
  if (args.nesterov) return sgd_loop<T, Momentum::kNesterov, kDecay>(p, g, buffer, n, in, args);
  return sgd_loop<T, Momentum::kHeavyBall, kDecay>(p, g, buffer, n, in, args);
}

template <typename T>
void sgd(T* p, const T* g, T* buffer, int64_t n, const GradientArgs& in, const SgdArgs& args) {
  return in.decay != 0.0 ? sgd_with<T, true>(p, g, buffer, n, in, args) : sgd_with<T, false>(p, g, buffer, n, in, args);
}

template <typename T, bool kMax, bool kDecay>
void adam_loop(T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v, T* __restrict v_max, int64_t n,
               const GradientArgs& in, const AdamArgs& args) {
  const Reader<T, kDecay> read(in);
  const T keep_1 = static_cast<T>(args.beta_1);
  const T fresh_1 = static_cast<T>(1.0 - args.beta_1);
  const T keep_2 = static_cast<T>(args.beta_2);
  const T fresh_2 = static_cast<T>(1.0 - args.beta_2);
  const T step_size = static_cast<T>(args.step_size);
  const T epsilon = static_cast<T>(args.epsilon);
  const T shrink = static_cast<T>(args.shrink);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    const T mean = keep_1 * m[i] + fresh_1 * d;
    T square = keep_2 * v[i] + fresh_2 * d * d;
    m[i] = mean;
    v[i] = square;
    if constexpr (kMax) {
      square = square <= v_max[i] ? v_max[i] : square;  // a NaN stays, as in torch::maximum
      v_max[i] = square;
    }
    p[i] = p[i] * shrink - step_size * mean / (root(square) + epsilon);
  }
}

template <typename T>
void adam(T* p, const T* g, T* m, T* v, T* v_max, int64_t n, const GradientArgs& in, const AdamArgs& args) {
  const bool decay = in.decay != 0.0;
  if (v_max != nullptr) {
    return decay ? adam_loop<T, true, true>(p, g, m, v, v_max, n, in, args)
                 : adam_loop<T, true, false>(p, g, m, v, v_max, n, in, args);
  }
  return decay ? adam_loop<T, false, true>(p, g, m, v, v_max, n, in, args)
               : adam_loop<T, false, false>(p, g, m, v, v_max, n, in, args);
}

template <typename T, bool kCentered, bool kMomentum, bool kDecay>
void rmsprop_loop(T* __restrict p, const T* __restrict g, T* __restrict v, T* __restrict mean, T* __restrict buffer,
                  int64_t n, const GradientArgs& in, const RmspropArgs& args) {
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T rho = static_cast<T>(args.rho);
  const T fresh = static_cast<T>(1.0 - args.rho);
  const T momentum = static_cast<T>(args.momentum);
  const T epsilon = static_cast<T>(args.epsilon);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    T variance = rho * v[i] + fresh * d * d;
    v[i] = variance;
    if constexpr (kCentered) {
      const T average = rho * mean[i] + fresh * d;
      mean[i] = average;
      variance -= average * average;
      // Never negative but for rounding, whose root would be a NaN.
      variance = variance < T(0) ? T(0) : variance;
    }
    T step = d / (root(variance) + epsilon);
    if constexpr (kMomentum) {
      step = momentum * buffer[i] + step;
      buffer[i] = step;
    }
    p[i] -= rate * step;
  }
}

template <typename T, bool kDecay>
void rmsprop_with(T* p, const T* g, T* v, T* mean, T* buffer, int64_t n, const GradientArgs& in,
                  const RmspropArgs& args) {
  if (mean != nullptr) {
    return buffer != nullptr ? rmsprop_loop<T, true, true, kDecay>(p, g, v, mean, buffer, n, in, args)
                             : rmsprop_loop<T, true, false, kDecay>(p, g, v, mean, buffer, n, in, args);
  }
  return buffer != nullptr ? rmsprop_loop<T, false, true, kDecay>(p, g, v, mean, buffer, n, in, args)
                           : rmsprop_loop<T, false, false, kDecay>(p, g, v, mean, buffer, n, in, args);
}

template <typename T>
void rmsprop(T* p, const T* g, T* v, T* mean, T* buffer, int64_t n, const GradientArgs& in, const RmspropArgs& args) {
  return in.decay != 0.0 ? rmsprop_with<T, true>(p, g, v, mean, buffer, n, in, args)
                         : rmsprop_with<T, false>(p, g, v, mean, buffer, n, in, args);
}

template <typename T, bool kDecay>
void adagrad_loop(T* __restrict p, const T* __restrict g, T* __restrict sum, int64_t n, const GradientArgs& in,
                  const AdagradArgs& args) {
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T epsilon = static_cast<T>(args.epsilon);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    const T square = sum[i] + d * d;
    sum[i] = square;
    p[i] -= rate * d / (root(square) + epsilon);
  }
}

template <typename T>
void adagrad(T* p, const T* g, T* sum, int64_t n, const GradientArgs& in, const AdagradArgs& args) {
  return in.decay != 0.0 ? adagrad_loop<T, true>(p, g, sum, n, in, args)
                         : adagrad_loop<T, false>(p, g, sum, n, in, args);
}

template <typename T>
void lamb_direction(const T* __restrict p, T* __restrict g, T* __restrict m, T* __restrict v, int64_t n,
                    const GradientArgs& in, const LambArgs& args) {
  const Reader<T, false> read(in);
  const T keep_1 = static_cast<T>(args.beta_1);
  const T fresh_1 = static_cast<T>(1.0 - args.beta_1);
  const T keep_2 = static_cast<T>(args.beta_2);
  const T fresh_2 = static_cast<T>(1.0 - args.beta_2);
  const T scale = static_cast<T>(args.scale);
  const T epsilon = static_cast<T>(args.epsilon);
  const T decay = static_cast<T>(args.weight_decay);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    const T mean = keep_1 * m[i] + fresh_1 * d;
    const T square = keep_2 * v[i] + fresh_2 * d * d;
    m[i] = mean;
    v[i] = square;
    g[i] = scale * mean / (root(square) + epsilon) + decay * p[i];
  }
}

template <typename T, bool kNesterov>
void lars_loop(T* __restrict p, const T* __restrict g, T* __restrict buffer, int64_t n, const LarsArgs& args) {
  const T rate = static_cast<T>(args.learning_rate);
  const T momentum = static_cast<T>(args.momentum);
  const T decay = static_cast<T>(args.weight_decay);
  for (int64_t i = 0; i < n; ++i) {
    const T step = rate * (g[i] + decay * p[i]);
    const T velocity = momentum * buffer[i] + step;
    buffer[i] = velocity;
    p[i] -= kNesterov ? step + momentum * velocity : velocity;
  }
}

template <typename T>
void lars(T* p, const T* g, T* buffer, int64_t n, const LarsArgs& args) {
  return args.nesterov ? lars_loop<T, true>(p, g, buffer, n, args) : lars_loop<T, false>(p, g, buffer, n, args);
}

template <typename T>
void read_gradient(T* __restrict g, int64_t n, const GradientArgs& in) {
  const Reader<T, false> read(in);
  for (int64_t i = 0; i < n; ++i) g[i] = read(g[i], T(0));
}

template <typename T>
void subtract(T* __restrict p, const T* __restrict g, int64_t n, double rate) {
  const T factor = static_cast<T>(rate);
  for (int64_t i = 0; i < n; ++i) p[i] -= factor * g[i];
}

}  // namespace

const UpdateTables kUpdateTables = {
    {sgd<float>, adam<float>, rmsprop<float>, adagrad<float>, lamb_direction<float>, lars<float>, read_gradient<float>,
     subtract<float>},
    {sgd<double>, adam<double>, rmsprop<double>, adagrad<double>, lamb_direction<double>, lars<double>,
     read_gradient<double>, subtract<double>},
};

}  // namespace cohort::kernels::COHORT_ISA
