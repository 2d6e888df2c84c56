// The loops of the rules that LibTorch or the large-batch papers have: SGD, Adam, RMSprop, Adagrad, LAMB, LARS. One
// loop serves all formulations of a rule: where they differ is in the scalars that come with it.
#pragma once

#include "optimizer/kernels/update_reader.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

enum class Momentum { kNone, kHeavyBall, kNesterov };

template <typename T, Momentum kMomentum, bool kDecay>
COHORT_LOOP sgd_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict buffer, GradientArgs in,
                     SgdArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T keep = static_cast<T>(args.keep);
  const T fresh = static_cast<T>(args.fresh);
  const T momentum = static_cast<T>(args.momentum);
  const T ahead = static_cast<T>(args.ahead);
  COHORT_EACH(i, n) {
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
  if (buffer == nullptr) return run<sgd_loop<T, Momentum::kNone, kDecay>>(n, p, g, buffer, in, args);
  if (args.nesterov) return run<sgd_loop<T, Momentum::kNesterov, kDecay>>(n, p, g, buffer, in, args);
  return run<sgd_loop<T, Momentum::kHeavyBall, kDecay>>(n, p, g, buffer, in, args);
}

template <typename T>
void sgd(T* p, const T* g, T* buffer, int64_t n, const GradientArgs& in, const SgdArgs& args) {
  return in.decay != 0.0 ? sgd_with<T, true>(p, g, buffer, n, in, args) : sgd_with<T, false>(p, g, buffer, n, in, args);
}

template <typename T, bool kMax, bool kDecay>
COHORT_LOOP adam_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v,
                      T* __restrict v_max, GradientArgs in, AdamArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, kDecay> read(in);
  const T keep_1 = static_cast<T>(args.beta_1);
  const T fresh_1 = static_cast<T>(1.0 - args.beta_1);
  const T keep_2 = static_cast<T>(args.beta_2);
  const T fresh_2 = static_cast<T>(1.0 - args.beta_2);
  const T step_size = static_cast<T>(args.step_size);
  const T epsilon = static_cast<T>(args.epsilon);
  const T shrink = static_cast<T>(args.shrink);
  COHORT_EACH(i, n) {
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
    return decay ? run<adam_loop<T, true, true>>(n, p, g, m, v, v_max, in, args)
                 : run<adam_loop<T, true, false>>(n, p, g, m, v, v_max, in, args);
  }
  return decay ? run<adam_loop<T, false, true>>(n, p, g, m, v, v_max, in, args)
               : run<adam_loop<T, false, false>>(n, p, g, m, v, v_max, in, args);
}

template <typename T, bool kCentered, bool kMomentum, bool kDecay>
COHORT_LOOP rmsprop_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict v, T* __restrict mean,
                         T* __restrict buffer, GradientArgs in, RmspropArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T fresh_rate = static_cast<T>(args.fresh_rate);
  const T rho = static_cast<T>(args.rho);
  const T fresh = static_cast<T>(1.0 - args.rho);
  const T momentum = static_cast<T>(args.momentum);
  const T inside = static_cast<T>(args.inside);
  const T epsilon = static_cast<T>(args.epsilon);
  COHORT_EACH(i, n) {
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
    return buffer != nullptr ? run<rmsprop_loop<T, true, true, kDecay>>(n, p, g, v, mean, buffer, in, args)
                             : run<rmsprop_loop<T, true, false, kDecay>>(n, p, g, v, mean, buffer, in, args);
  }
  return buffer != nullptr ? run<rmsprop_loop<T, false, true, kDecay>>(n, p, g, v, mean, buffer, in, args)
                           : run<rmsprop_loop<T, false, false, kDecay>>(n, p, g, v, mean, buffer, in, args);
}

template <typename T>
void rmsprop(T* p, const T* g, T* v, T* mean, T* buffer, int64_t n, const GradientArgs& in, const RmspropArgs& args) {
  return in.decay != 0.0 ? rmsprop_with<T, true>(p, g, v, mean, buffer, n, in, args)
                         : rmsprop_with<T, false>(p, g, v, mean, buffer, n, in, args);
}

template <typename T, bool kDecay>
COHORT_LOOP adagrad_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict sum, GradientArgs in,
                         AdagradArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T inside = static_cast<T>(args.inside);
  const T epsilon = static_cast<T>(args.epsilon);
  COHORT_EACH(i, n) {
    const T d = read(g[i], p[i]);
    const T square = sum[i] + d * d;
    sum[i] = square;
    p[i] -= rate * d / (root(square + inside) + epsilon);
  }
}

template <typename T>
void adagrad(T* p, const T* g, T* sum, int64_t n, const GradientArgs& in, const AdagradArgs& args) {
  return in.decay != 0.0 ? run<adagrad_loop<T, true>>(n, p, g, sum, in, args)
                         : run<adagrad_loop<T, false>>(n, p, g, sum, in, args);
}

template <typename T, bool kDecay>
COHORT_LOOP lamb_loop(int64_t n, const T* __restrict p, T* __restrict g, T* __restrict m, T* __restrict v,
                      GradientArgs in, LambArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, kDecay> read(in);
  const T keep_1 = static_cast<T>(args.beta_1);
  const T fresh_1 = static_cast<T>(1.0 - args.beta_1);
  const T keep_2 = static_cast<T>(args.beta_2);
  const T fresh_2 = static_cast<T>(1.0 - args.beta_2);
  const T scale = static_cast<T>(args.scale);
  const T epsilon = static_cast<T>(args.epsilon);
  const T decay = static_cast<T>(args.weight_decay);
  COHORT_EACH(i, n) {
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
  return in.decay != 0.0 ? run<lamb_loop<T, true>>(n, p, g, m, v, in, args)
                         : run<lamb_loop<T, false>>(n, p, g, m, v, in, args);
}

template <typename T, bool kNesterov>
COHORT_LOOP lars_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict buffer, LarsArgs args) {
  const T rate = static_cast<T>(args.learning_rate);
  const T momentum = static_cast<T>(args.momentum);
  const T decay = static_cast<T>(args.weight_decay);
  COHORT_EACH(i, n) {
    const T step = rate * (g[i] + decay * p[i]);
    const T velocity = momentum * buffer[i] + step;
    buffer[i] = velocity;
    p[i] -= kNesterov ? step + momentum * velocity : velocity;
  }
}

template <typename T>
void lars(T* p, const T* g, T* buffer, int64_t n, const LarsArgs& args) {
  return args.nesterov ? run<lars_loop<T, true>>(n, p, g, buffer, args)
                       : run<lars_loop<T, false>>(n, p, g, buffer, args);
}

// Momentum of which the rate is no part: the step itself, whose norm decides its length.
template <typename T>
COHORT_LOOP lars_direction_loop(int64_t n, const T* __restrict p, T* __restrict g, T* __restrict buffer,
                                GradientArgs in, LarsArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, true> read(in);
  const T momentum = static_cast<T>(args.momentum);
  const T ahead = args.nesterov ? T(1) : T(0);
  const T look = args.nesterov ? momentum : T(1);
  COHORT_EACH(i, n) {
    const T d = read(g[i], p[i]);
    const T velocity = momentum * buffer[i] + d;
    buffer[i] = velocity;
    g[i] = ahead * d + look * velocity;
  }
}

template <typename T>
void lars_direction(const T* p, T* g, T* buffer, int64_t n, const GradientArgs& in, const LarsArgs& args) {
  run<lars_direction_loop<T>>(n, p, g, buffer, in, args);
}

template <typename T, bool kDecay>
COHORT_LOOP read_gradient_loop(int64_t n, const T* __restrict p, T* __restrict g, GradientArgs in) {
  const Reader<T, kDecay> read(in);
  COHORT_EACH(i, n) g[i] = read(g[i], kDecay ? p[i] : T(0));
}

template <typename T>
void read_gradient(const T* p, T* g, int64_t n, const GradientArgs& in) {
  return in.decay != 0.0 ? run<read_gradient_loop<T, true>>(n, p, g, in)
                         : run<read_gradient_loop<T, false>>(n, p, g, in);
}

template <typename T>
COHORT_LOOP subtract_loop(int64_t n, T* __restrict p, const T* __restrict g, double rate) {
  const T factor = static_cast<T>(rate);
  COHORT_EACH(i, n) p[i] -= factor * g[i];
}

template <typename T>
void subtract(T* p, const T* g, int64_t n, double rate) {
  run<subtract_loop<T>>(n, p, g, rate);
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
