// The loops of the rules that LibTorch or the large-batch papers have: SGD, Adam, RMSprop, Adagrad, LAMB, LARS. One
// loop serves all formulations of a rule: where they differ is in the scalars that come with it.
#pragma once

#include "optimizer/kernels/update_reader.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

enum class Momentum { kNone, kHeavyBall, kNesterov };

template <typename T, Momentum kMomentum, bool kDecay>
void sgd_loop(T* __restrict p, const T* __restrict g, T* __restrict buffer, int64_t n, const GradientArgs& in,
              const SgdArgs& args) {
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T keep = static_cast<T>(args.keep);
  const T fresh = static_cast<T>(args.fresh);
  const T momentum = static_cast<T>(args.momentum);
  const T ahead = static_cast<T>(args.ahead);
  for (int64_t i = 0; i < n; ++i) {
    T d = read(g[i], p[i]);
    if constexpr (kMomentum != Momentum::kNone) {
      const T velocity = keep * buffer[i] + fresh * d;
      buffer[i] = velocity;
      d = kMomentum == Momentum::kNesterov ? ahead * d + momentum * velocity : velocity;
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
  const T fresh_rate = static_cast<T>(args.fresh_rate);
  const T rho = static_cast<T>(args.rho);
  const T fresh = static_cast<T>(1.0 - args.rho);
  const T momentum = static_cast<T>(args.momentum);
  const T inside = static_cast<T>(args.inside);
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
    T step = fresh_rate * d / (root(variance + inside) + epsilon);
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
  const T inside = static_cast<T>(args.inside);
  const T epsilon = static_cast<T>(args.epsilon);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    const T square = sum[i] + d * d;
    sum[i] = square;
    p[i] -= rate * d / (root(square + inside) + epsilon);
  }
}

template <typename T>
void adagrad(T* p, const T* g, T* sum, int64_t n, const GradientArgs& in, const AdagradArgs& args) {
  return in.decay != 0.0 ? adagrad_loop<T, true>(p, g, sum, n, in, args)
                         : adagrad_loop<T, false>(p, g, sum, n, in, args);
}

template <typename T, bool kDecay>
void lamb_loop(const T* __restrict p, T* __restrict g, T* __restrict m, T* __restrict v, int64_t n,
               const GradientArgs& in, const LambArgs& args) {
  const Reader<T, kDecay> read(in);
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

template <typename T>
void lamb_direction(const T* p, T* g, T* m, T* v, int64_t n, const GradientArgs& in, const LambArgs& args) {
  return in.decay != 0.0 ? lamb_loop<T, true>(p, g, m, v, n, in, args) : lamb_loop<T, false>(p, g, m, v, n, in, args);
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

// Momentum of which the rate is no part: the step itself, whose norm decides its length.
template <typename T>
void lars_direction(const T* __restrict p, T* __restrict g, T* __restrict buffer, int64_t n, const GradientArgs& in,
                    const LarsArgs& args) {
  const Reader<T, true> read(in);
  const T momentum = static_cast<T>(args.momentum);
  const T ahead = args.nesterov ? T(1) : T(0);
  const T look = args.nesterov ? momentum : T(1);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    const T velocity = momentum * buffer[i] + d;
    buffer[i] = velocity;
    g[i] = ahead * d + look * velocity;
  }
}

template <typename T>
void read_gradient(const T* __restrict p, T* __restrict g, int64_t n, const GradientArgs& in) {
  if (in.decay != 0.0) {
    const Reader<T, true> read(in);
    for (int64_t i = 0; i < n; ++i) g[i] = read(g[i], p[i]);
  } else {
    const Reader<T, false> read(in);
    for (int64_t i = 0; i < n; ++i) g[i] = read(g[i], T(0));
  }
}

template <typename T>
void subtract(T* __restrict p, const T* __restrict g, int64_t n, double rate) {
  const T factor = static_cast<T>(rate);
  for (int64_t i = 0; i < n; ++i) p[i] -= factor * g[i];
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
