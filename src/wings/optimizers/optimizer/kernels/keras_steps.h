// The arithmetic of one element by the rules that Keras alone has: Adadelta, Adamax, Nadam, FTRL, Lion. See
// optimizer/kernels/update_steps.h.
#pragma once

#include "optimizer/kernels/update_reader.h"
#include "wings/optimizers/optimizer/kernels/more_table.h"

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

template <typename T>
struct AdadeltaStep {
  using Number = T;
  using Args = AdadeltaArgs;
  static constexpr int kSlots = 2;

  COHORT_ON_DEVICE explicit AdadeltaStep(const AdadeltaArgs& args)
      : rate(static_cast<T>(args.learning_rate)),
        rho(static_cast<T>(args.rho)),
        fresh(static_cast<T>(1.0 - args.rho)),
        epsilon(static_cast<T>(args.epsilon)) {}

  COHORT_ON_DEVICE void operator()(T& p, T d, T& squares, T& steps, T& /*unused*/) const {
    squares = rho * squares + fresh * d * d;
    const T step = root(steps + epsilon) * d / root(squares + epsilon);
    steps = rho * steps + fresh * step * step;
    p -= rate * step;
  }

  T rate, rho, fresh, epsilon;
};

template <typename T>
struct AdamaxStep {
  using Number = T;
  using Args = AdamaxArgs;
  static constexpr int kSlots = 2;

  COHORT_ON_DEVICE explicit AdamaxStep(const AdamaxArgs& args)
      : keep_1(static_cast<T>(args.beta_1)),
        fresh_1(static_cast<T>(1.0 - args.beta_1)),
        keep_2(static_cast<T>(args.beta_2)),
        step_size(static_cast<T>(args.step_size)),
        epsilon(static_cast<T>(args.epsilon)) {}

  COHORT_ON_DEVICE void operator()(T& p, T d, T& m, T& u, T& /*unused*/) const {
    m = keep_1 * m + fresh_1 * d;
    const T faded = keep_2 * u;
    const T size = magnitude(d);
    u = size <= faded ? faded : size;  // a NaN stays
    p -= step_size * m / (u + epsilon);
  }

  T keep_1, fresh_1, keep_2, step_size, epsilon;
};

template <typename T>
struct NadamStep {
  using Number = T;
  using Args = NadamArgs;
  static constexpr int kSlots = 2;

  COHORT_ON_DEVICE explicit NadamStep(const NadamArgs& args)
      : keep_1(static_cast<T>(args.beta_1)),
        fresh_1(static_cast<T>(1.0 - args.beta_1)),
        keep_2(static_cast<T>(args.beta_2)),
        fresh_2(static_cast<T>(1.0 - args.beta_2)),
        of_mean(static_cast<T>(args.of_mean)),
        of_gradient(static_cast<T>(args.of_gradient)),
        epsilon(static_cast<T>(args.epsilon)) {}

  COHORT_ON_DEVICE void operator()(T& p, T d, T& m, T& v, T& /*unused*/) const {
    m = keep_1 * m + fresh_1 * d;
    v = keep_2 * v + fresh_2 * d * d;
    p -= (of_mean * m + of_gradient * d) / (root(v) + epsilon);
  }

  T keep_1, fresh_1, keep_2, fresh_2, of_mean, of_gradient, epsilon;
};

// The usual power of the rate is a root, which has an instruction. Without a rate nothing moves, because the sums are
// divided by it.
template <typename T, bool kRoot>
struct FtrlStep {
  using Number = T;
  using Args = FtrlArgs;
  static constexpr int kSlots = 2;

  COHORT_ON_DEVICE explicit FtrlStep(const FtrlArgs& args)
      : rate(static_cast<T>(args.learning_rate)),
        exponent(static_cast<T>(args.exponent)),
        l1(static_cast<T>(args.l1)),
        twice_l2(static_cast<T>(args.twice_l2)),
        shrinkage(static_cast<T>(args.twice_shrinkage)) {}

  COHORT_ON_DEVICE T raised(T x) const { return kRoot ? root(x) : power(x, exponent); }

  COHORT_ON_DEVICE void operator()(T& p, T d, T& sum, T& linear, T& /*unused*/) const {
    const T before = sum;
    const T after = before + d * d;
    const T high = raised(after);
    const T z = linear + (d + shrinkage * p - (high - raised(before)) / rate * p);
    T clipped = z < -l1 ? -l1 : z;
    clipped = clipped > l1 ? l1 : clipped;
    const T made = (clipped - z) / (high / rate + twice_l2);
    sum = rate == T(0) ? before : after;
    linear = rate == T(0) ? linear : z;
    p = rate == T(0) ? p : made;
  }

  T rate, exponent, l1, twice_l2, shrinkage;
};

template <typename T>
struct LionStep {
  using Number = T;
  using Args = LionArgs;
  static constexpr int kSlots = 1;

  COHORT_ON_DEVICE explicit LionStep(const LionArgs& args)
      : rate(static_cast<T>(args.learning_rate)),
        keep_1(static_cast<T>(args.beta_1)),
        fresh_1(static_cast<T>(1.0 - args.beta_1)),
        keep_2(static_cast<T>(args.beta_2)),
        fresh_2(static_cast<T>(1.0 - args.beta_2)) {}

  COHORT_ON_DEVICE void operator()(T& p, T d, T& m, T& /*unused*/, T& /*unused*/) const {
    const T c = keep_1 * m + fresh_1 * d;
    const T sign = c > T(0) ? T(1) : c < T(0) ? T(-1) : c;  // zero and NaN stay
    p -= rate * sign;
    m = keep_2 * m + fresh_2 * d;
  }

  T rate, keep_1, fresh_1, keep_2, fresh_2;
};

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
