// The loops of the rules that Keras alone has (Adadelta, Adamax, Nadam, FTRL, Lion, Adafactor), and what surrounds
// every rule: decoupled decay and averages of the parameters.
#pragma once

#include "optimizer/kernels/update_reader.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

inline float magnitude(float x) {
  return __builtin_fabsf(x);
}
inline double magnitude(double x) {
  return __builtin_fabs(x);
}
inline float power(float x, float exponent) {
  return __builtin_powf(x, exponent);
}
inline double power(double x, double exponent) {
  return __builtin_pow(x, exponent);
}

template <typename T, bool kDecay>
void adadelta_loop(T* __restrict p, const T* __restrict g, T* __restrict squares, T* __restrict steps, int64_t n,
                   const GradientArgs& in, const AdadeltaArgs& args) {
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T rho = static_cast<T>(args.rho);
  const T fresh = static_cast<T>(1.0 - args.rho);
  const T epsilon = static_cast<T>(args.epsilon);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    const T square = rho * squares[i] + fresh * d * d;
    squares[i] = square;
    const T step = root(steps[i] + epsilon) * d / root(square + epsilon);
    steps[i] = rho * steps[i] + fresh * step * step;
    p[i] -= rate * step;
  }
}

template <typename T>
void adadelta(T* p, const T* g, T* squares, T* steps, int64_t n, const GradientArgs& in, const AdadeltaArgs& args) {
  return in.decay != 0.0 ? adadelta_loop<T, true>(p, g, squares, steps, n, in, args)
                         : adadelta_loop<T, false>(p, g, squares, steps, n, in, args);
}

template <typename T, bool kDecay>
void adamax_loop(T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict u, int64_t n,
                 const GradientArgs& in, const AdamaxArgs& args) {
  const Reader<T, kDecay> read(in);
  const T keep_1 = static_cast<T>(args.beta_1);
  const T fresh_1 = static_cast<T>(1.0 - args.beta_1);
  const T keep_2 = static_cast<T>(args.beta_2);
  const T step_size = static_cast<T>(args.step_size);
  const T epsilon = static_cast<T>(args.epsilon);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    const T mean = keep_1 * m[i] + fresh_1 * d;
    const T faded = keep_2 * u[i];
    const T size = magnitude(d);
    const T largest = size <= faded ? faded : size;  // a NaN stays
    m[i] = mean;
    u[i] = largest;
    p[i] -= step_size * mean / (largest + epsilon);
  }
}

template <typename T>
void adamax(T* p, const T* g, T* m, T* u, int64_t n, const GradientArgs& in, const AdamaxArgs& args) {
  return in.decay != 0.0 ? adamax_loop<T, true>(p, g, m, u, n, in, args)
                         : adamax_loop<T, false>(p, g, m, u, n, in, args);
}

template <typename T, bool kDecay>
void nadam_loop(T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v, int64_t n,
                const GradientArgs& in, const NadamArgs& args) {
  const Reader<T, kDecay> read(in);
  const T keep_1 = static_cast<T>(args.beta_1);
  const T fresh_1 = static_cast<T>(1.0 - args.beta_1);
  const T keep_2 = static_cast<T>(args.beta_2);
  const T fresh_2 = static_cast<T>(1.0 - args.beta_2);
  const T of_mean = static_cast<T>(args.of_mean);
  const T of_gradient = static_cast<T>(args.of_gradient);
  const T epsilon = static_cast<T>(args.epsilon);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    const T mean = keep_1 * m[i] + fresh_1 * d;
    const T square = keep_2 * v[i] + fresh_2 * d * d;
    m[i] = mean;
    v[i] = square;
    p[i] -= (of_mean * mean + of_gradient * d) / (root(square) + epsilon);
  }
}

template <typename T>
void nadam(T* p, const T* g, T* m, T* v, int64_t n, const GradientArgs& in, const NadamArgs& args) {
  return in.decay != 0.0 ? nadam_loop<T, true>(p, g, m, v, n, in, args) : nadam_loop<T, false>(p, g, m, v, n, in, args);
}

// The usual power of the rate is a root, which has an instruction.
template <typename T, bool kRoot, bool kDecay>
void ftrl_loop(T* __restrict p, const T* __restrict g, T* __restrict sum, T* __restrict linear, int64_t n,
               const GradientArgs& in, const FtrlArgs& args) {
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T exponent = static_cast<T>(args.exponent);
  const T l1 = static_cast<T>(args.l1);
  const T twice_l2 = static_cast<T>(args.twice_l2);
  const T shrinkage = static_cast<T>(args.twice_shrinkage);
  const auto raised = [exponent](T x) { return kRoot ? root(x) : power(x, exponent); };
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    const T before = sum[i];
    const T after = before + d * d;
    sum[i] = after;
    const T high = raised(after);
    const T z = linear[i] + (d + shrinkage * p[i] - (high - raised(before)) / rate * p[i]);
    linear[i] = z;
    T clipped = z < -l1 ? -l1 : z;
    clipped = clipped > l1 ? l1 : clipped;
    p[i] = (clipped - z) / (high / rate + twice_l2);
  }
}

template <typename T>
void ftrl(T* p, const T* g, T* sum, T* linear, int64_t n, const GradientArgs& in, const FtrlArgs& args) {
  if (args.exponent == 0.5) {
    return in.decay != 0.0 ? ftrl_loop<T, true, true>(p, g, sum, linear, n, in, args)
                           : ftrl_loop<T, true, false>(p, g, sum, linear, n, in, args);
  }
  return in.decay != 0.0 ? ftrl_loop<T, false, true>(p, g, sum, linear, n, in, args)
                         : ftrl_loop<T, false, false>(p, g, sum, linear, n, in, args);
}

template <typename T, bool kDecay>
void lion_loop(T* __restrict p, const T* __restrict g, T* __restrict m, int64_t n, const GradientArgs& in,
               const LionArgs& args) {
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T keep_1 = static_cast<T>(args.beta_1);
  const T fresh_1 = static_cast<T>(1.0 - args.beta_1);
  const T keep_2 = static_cast<T>(args.beta_2);
  const T fresh_2 = static_cast<T>(1.0 - args.beta_2);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    const T mean = m[i];
    const T c = keep_1 * mean + fresh_1 * d;
    const T sign = c > T(0) ? T(1) : c < T(0) ? T(-1) : c;  // zero and NaN stay
    p[i] -= rate * sign;
    m[i] = keep_2 * mean + fresh_2 * d;
  }
}

template <typename T>
void lion(T* p, const T* g, T* m, int64_t n, const GradientArgs& in, const LionArgs& args) {
  return in.decay != 0.0 ? lion_loop<T, true>(p, g, m, n, in, args) : lion_loop<T, false>(p, g, m, n, in, args);
}

template <typename T>
void add_squares(T* __restrict sum, const T* __restrict g, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += g[i] * g[i];
}

template <typename T>
void blend(T* __restrict mean, const T* __restrict sum, int64_t n, const BlendArgs& args) {
  const T keep = static_cast<T>(args.keep);
  const T fresh = static_cast<T>(1.0 - args.keep);
  const T share = static_cast<T>(args.share);
  const T add = static_cast<T>(args.add);
  for (int64_t i = 0; i < n; ++i) mean[i] = keep * mean[i] + fresh * (share * sum[i] + add);
}

template <typename T>
void divide_by_root(T* __restrict g, const T* __restrict squares, int64_t n, double factor) {
  const T scale = static_cast<T>(factor);
  for (int64_t i = 0; i < n; ++i) g[i] = g[i] / root(scale * squares[i]);
}

template <typename T>
void scale(T* __restrict p, int64_t n, double factor) {
  const T by = static_cast<T>(factor);
  for (int64_t i = 0; i < n; ++i) p[i] *= by;
}

template <typename T>
void average(T* __restrict mean, const T* __restrict p, int64_t n, double momentum) {
  const T keep = static_cast<T>(momentum);
  const T fresh = static_cast<T>(1.0 - momentum);
  for (int64_t i = 0; i < n; ++i) mean[i] = keep * mean[i] + fresh * p[i];
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
