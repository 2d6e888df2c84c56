// The loops of the rules that Keras alone has (Adadelta, Adamax, Nadam, FTRL, Lion, Adafactor), and what surrounds
// every rule: decoupled decay and averages of the parameters.
#pragma once

#include "optimizer/kernels/update_reader.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

COHORT_ON_DEVICE inline float magnitude(float x) {
  return COHORT_MATH(fabsf)(x);
}
COHORT_ON_DEVICE inline double magnitude(double x) {
  return COHORT_MATH(fabs)(x);
}
COHORT_ON_DEVICE inline float power(float x, float exponent) {
  return COHORT_MATH(powf)(x, exponent);
}
COHORT_ON_DEVICE inline double power(double x, double exponent) {
  return COHORT_MATH(pow)(x, exponent);
}

template <typename T, bool kDecay>
COHORT_LOOP adadelta_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict squares, T* __restrict steps,
                          GradientArgs in, AdadeltaArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T rho = static_cast<T>(args.rho);
  const T fresh = static_cast<T>(1.0 - args.rho);
  const T epsilon = static_cast<T>(args.epsilon);
  COHORT_EACH(i, n) {
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
  return in.decay != 0.0 ? run<adadelta_loop<T, true>>(n, p, g, squares, steps, in, args)
                         : run<adadelta_loop<T, false>>(n, p, g, squares, steps, in, args);
}

template <typename T, bool kDecay>
COHORT_LOOP adamax_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict u,
                        GradientArgs in, AdamaxArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, kDecay> read(in);
  const T keep_1 = static_cast<T>(args.beta_1);
  const T fresh_1 = static_cast<T>(1.0 - args.beta_1);
  const T keep_2 = static_cast<T>(args.beta_2);
  const T step_size = static_cast<T>(args.step_size);
  const T epsilon = static_cast<T>(args.epsilon);
  COHORT_EACH(i, n) {
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
  return in.decay != 0.0 ? run<adamax_loop<T, true>>(n, p, g, m, u, in, args)
                         : run<adamax_loop<T, false>>(n, p, g, m, u, in, args);
}

template <typename T, bool kDecay>
COHORT_LOOP nadam_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v,
                       GradientArgs in, NadamArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, kDecay> read(in);
  const T keep_1 = static_cast<T>(args.beta_1);
  const T fresh_1 = static_cast<T>(1.0 - args.beta_1);
  const T keep_2 = static_cast<T>(args.beta_2);
  const T fresh_2 = static_cast<T>(1.0 - args.beta_2);
  const T of_mean = static_cast<T>(args.of_mean);
  const T of_gradient = static_cast<T>(args.of_gradient);
  const T epsilon = static_cast<T>(args.epsilon);
  COHORT_EACH(i, n) {
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
  return in.decay != 0.0 ? run<nadam_loop<T, true>>(n, p, g, m, v, in, args)
                         : run<nadam_loop<T, false>>(n, p, g, m, v, in, args);
}

// The usual power of the rate is a root, which has an instruction.
template <typename T, bool kRoot, bool kDecay>
COHORT_LOOP ftrl_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict sum, T* __restrict linear,
                      GradientArgs in, FtrlArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T exponent = static_cast<T>(args.exponent);
  const T l1 = static_cast<T>(args.l1);
  const T twice_l2 = static_cast<T>(args.twice_l2);
  const T shrinkage = static_cast<T>(args.twice_shrinkage);
  const auto raised = [exponent](T x) { return kRoot ? root(x) : power(x, exponent); };
  COHORT_EACH(i, n) {
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
    return in.decay != 0.0 ? run<ftrl_loop<T, true, true>>(n, p, g, sum, linear, in, args)
                           : run<ftrl_loop<T, true, false>>(n, p, g, sum, linear, in, args);
  }
  return in.decay != 0.0 ? run<ftrl_loop<T, false, true>>(n, p, g, sum, linear, in, args)
                         : run<ftrl_loop<T, false, false>>(n, p, g, sum, linear, in, args);
}

template <typename T, bool kDecay>
COHORT_LOOP lion_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict m, GradientArgs in,
                      LionArgs args) {
  if (leaves_out(in)) return;
  const Reader<T, kDecay> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T keep_1 = static_cast<T>(args.beta_1);
  const T fresh_1 = static_cast<T>(1.0 - args.beta_1);
  const T keep_2 = static_cast<T>(args.beta_2);
  const T fresh_2 = static_cast<T>(1.0 - args.beta_2);
  COHORT_EACH(i, n) {
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
  return in.decay != 0.0 ? run<lion_loop<T, true>>(n, p, g, m, in, args)
                         : run<lion_loop<T, false>>(n, p, g, m, in, args);
}

template <typename T>
COHORT_LOOP add_squares_loop(int64_t n, T* __restrict sum, const T* __restrict g) {
  COHORT_EACH(i, n) sum[i] += g[i] * g[i];
}

template <typename T>
void add_squares(T* sum, const T* g, int64_t n) {
  run<add_squares_loop<T>>(n, sum, g);
}

template <typename T>
COHORT_LOOP blend_loop(int64_t n, T* __restrict mean, const T* __restrict sum, BlendArgs args) {
  const T keep = static_cast<T>(args.keep);
  const T fresh = static_cast<T>(1.0 - args.keep);
  const T share = static_cast<T>(args.share);
  const T add = static_cast<T>(args.add);
  COHORT_EACH(i, n) mean[i] = keep * mean[i] + fresh * (share * sum[i] + add);
}

template <typename T>
void blend(T* mean, const T* sum, int64_t n, const BlendArgs& args) {
  run<blend_loop<T>>(n, mean, sum, args);
}

template <typename T>
COHORT_LOOP divide_by_root_loop(int64_t n, T* __restrict g, const T* __restrict squares, double factor) {
  const T scale = static_cast<T>(factor);
  COHORT_EACH(i, n) g[i] = g[i] / root(scale * squares[i]);
}

template <typename T>
void divide_by_root(T* g, const T* squares, int64_t n, double factor) {
  run<divide_by_root_loop<T>>(n, g, squares, factor);
}

template <typename T>
COHORT_LOOP scale_loop(int64_t n, T* __restrict p, double factor, const bool* only_if) {
  if (only_if != nullptr && !*only_if) return;
  const T by = static_cast<T>(factor);
  COHORT_EACH(i, n) p[i] *= by;
}

template <typename T>
void scale(T* p, int64_t n, double factor, const bool* only_if) {
  run<scale_loop<T>>(n, p, factor, only_if);
}

template <typename T>
COHORT_LOOP average_loop(int64_t n, T* __restrict mean, const T* __restrict p, double momentum, const bool* only_if) {
  if (only_if != nullptr && !*only_if) return;
  const T keep = static_cast<T>(momentum);
  const T fresh = static_cast<T>(1.0 - momentum);
  COHORT_EACH(i, n) mean[i] = keep * mean[i] + fresh * p[i];
}

template <typename T>
void average(T* mean, const T* p, int64_t n, double momentum, const bool* only_if) {
  run<average_loop<T>>(n, mean, p, momentum, only_if);
}

template <typename T>
COHORT_LOOP copy_loop(int64_t n, T* __restrict to, const T* __restrict from, const bool* only_if) {
  if (only_if != nullptr && !*only_if) return;
  COHORT_EACH(i, n) to[i] = from[i];
}

template <typename T>
void copy(T* to, const T* from, int64_t n, const bool* only_if) {
  run<copy_loop<T>>(n, to, from, only_if);
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
