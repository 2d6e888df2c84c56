// The passes of rules that a CPU updates in several: LAMB, LARS and Adafactor; and what surrounds these.
#pragma once

#include "wings/optimizers/optimizer/kernels/layer_steps.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

template <typename T, bool kDecay>
void lamb_loop(int64_t n, const T* __restrict p, T* __restrict g, T* __restrict m, T* __restrict v,
               const CommonArgs& in, const LambArgs& args) {
  const Reader<T, kDecay> read(in);
  const LambStep<T> step(args, 1.0);
  for (int64_t i = 0; i < n; ++i) {
    T mean = m[i];
    T square = v[i];
    g[i] = step.direction(p[i], read(g[i], p[i]), mean, square);
    m[i] = mean;
    v[i] = square;
  }
}

template <typename T>
void lamb_direction(const T* p, T* g, T* m, T* v, int64_t n, const CommonArgs& in, const LambArgs& args) {
  return in.decay != 0.0 ? lamb_loop<T, true>(n, p, g, m, v, in, args) : lamb_loop<T, false>(n, p, g, m, v, in, args);
}

template <typename T, bool kNesterov>
void lars_loop(int64_t n, T* __restrict p, const T* __restrict g, T* __restrict buffer, const LarsArgs& args) {
  const LarsStep<T, kNesterov> step(args, 1.0);
  for (int64_t i = 0; i < n; ++i) {
    T x = p[i];
    T velocity = buffer[i];
    T unused = T(0);
    step(x, g[i], velocity, unused, unused);
    buffer[i] = velocity;
    p[i] = x;
  }
}

template <typename T>
void lars(T* p, const T* g, T* buffer, int64_t n, const LarsArgs& args) {
  return args.nesterov ? lars_loop<T, true>(n, p, g, buffer, args) : lars_loop<T, false>(n, p, g, buffer, args);
}

template <typename T>
void lars_direction(const T* __restrict p, T* __restrict g, T* __restrict buffer, int64_t n, const CommonArgs& in,
                    const LarsArgs& args) {
  const Reader<T, true> read(in);
  const LarsVelocityStep<T> step(args, 1.0);
  for (int64_t i = 0; i < n; ++i) {
    T velocity = buffer[i];
    T unused = T(0);
    g[i] = step.direction(p[i], read(g[i], p[i]), velocity, unused);
    buffer[i] = velocity;
  }
}

template <typename T, bool kDecay>
void read_gradient_loop(int64_t n, const T* __restrict p, T* __restrict g, const CommonArgs& in) {
  const Reader<T, kDecay> read(in);
  for (int64_t i = 0; i < n; ++i) g[i] = read(g[i], kDecay ? p[i] : T(0));
}

template <typename T>
void read_gradient(const T* p, T* g, int64_t n, const CommonArgs& in) {
  return in.decay != 0.0 ? read_gradient_loop<T, true>(n, p, g, in) : read_gradient_loop<T, false>(n, p, g, in);
}

template <typename T>
void subtract(T* __restrict p, const T* __restrict g, int64_t n, double rate) {
  const T factor = static_cast<T>(rate);
  for (int64_t i = 0; i < n; ++i) p[i] -= factor * g[i];
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
  for (int64_t i = 0; i < n; ++i) g[i] = g[i] / root_of_estimate(scale * squares[i]);
}

template <typename T>
void scale(T* p, int64_t n, double factor) {
  const T by = static_cast<T>(factor);
  for (int64_t i = 0; i < n; ++i) p[i] *= by;
}

template <typename T>
void average(T* __restrict mean, const T* __restrict p, int64_t n, double momentum) {
  const T keep = static_cast<T>(momentum);
  const T fresh = static_cast<T>(1.0 - momentum);
  for (int64_t i = 0; i < n; ++i) mean[i] = keep * mean[i] + fresh * p[i];
}

template <typename T>
void copy(T* __restrict to, const T* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
