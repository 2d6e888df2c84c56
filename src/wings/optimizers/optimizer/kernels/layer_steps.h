// The arithmetic of one element by the rules whose steps depend on norms: LAMB, LARS. See
// optimizer/kernels/update_steps.h.
#pragma once

#include "optimizer/kernels/update_reader.h"
#include "wings/optimizers/optimizer/kernels/more_table.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

// Returns the root of Adafactor's estimate of a squared gradient, at least that of the smallest normal number. The
// product of the means of a row and a column may underflow where both had no gradient; 0 / 0 would be NaN then.
COHORT_ON_DEVICE inline float root_of_estimate(float square) {
  constexpr float kLeast = 1.17549435e-38F;
  return root(square < kLeast ? kLeast : square);
}
COHORT_ON_DEVICE inline double root_of_estimate(double square) {
  constexpr double kLeast = 2.2250738585072014e-308;
  return root(square < kLeast ? kLeast : square);
}

// A step whose length is a matter of norms has a direction, too. Its rate has the trust ratio in it.
template <typename T>
struct LambStep {
  using Number = T;
  using Args = LambArgs;
  static constexpr int kSlots = 2;

  COHORT_ON_DEVICE LambStep(const LambArgs& args, double trust_ratio)
      : keep_1(static_cast<T>(args.beta_1)),
        fresh_1(static_cast<T>(1.0 - args.beta_1)),
        keep_2(static_cast<T>(args.beta_2)),
        fresh_2(static_cast<T>(1.0 - args.beta_2)),
        scale(static_cast<T>(args.scale)),
        epsilon(static_cast<T>(args.epsilon)),
        decay(static_cast<T>(args.weight_decay)),
        rate(static_cast<T>(args.learning_rate * trust_ratio)) {}

  COHORT_ON_DEVICE T direction(T p, T d, T& m, T& v) const {
    m = keep_1 * m + fresh_1 * d;
    v = keep_2 * v + fresh_2 * d * d;
    return scale * m / (root(v) + epsilon) + decay * p;
  }
  COHORT_ON_DEVICE void operator()(T& p, T d, T& m, T& v, T& /*unused*/) const { p -= rate * direction(p, d, m, v); }

  T keep_1, fresh_1, keep_2, fresh_2, scale, epsilon, decay, rate;
};

template <typename T, bool kNesterov>
struct LarsStep {
  using Number = T;
  using Args = LarsArgs;
  static constexpr int kSlots = 1;

  COHORT_ON_DEVICE LarsStep(const LarsArgs& args, double trust_ratio)
      : rate(static_cast<T>(args.learning_rate * trust_ratio)),
        momentum(static_cast<T>(args.momentum)),
        decay(static_cast<T>(args.weight_decay)) {}

  COHORT_ON_DEVICE T direction(T /*p*/, T d, T& /*buffer*/, T& /*unused*/) const { return d; }
  COHORT_ON_DEVICE void operator()(T& p, T d, T& buffer, T& /*unused*/, T& /*unused*/) const {
    const T step = rate * (d + decay * p);
    const T velocity = momentum * buffer + step;
    buffer = velocity;
    p -= kNesterov ? step + momentum * velocity : velocity;
  }

  T rate, momentum, decay;
};

// Momentum of which the rate is no part: the step itself, whose norm decides its length.
template <typename T>
struct LarsVelocityStep {
  using Number = T;
  using Args = LarsArgs;
  static constexpr int kSlots = 1;

  COHORT_ON_DEVICE LarsVelocityStep(const LarsArgs& args, double trust_ratio)
      : rate(static_cast<T>(args.learning_rate * trust_ratio)),
        momentum(static_cast<T>(args.momentum)),
        ahead(args.nesterov ? T(1) : T(0)),
        look(args.nesterov ? momentum : T(1)) {}

  COHORT_ON_DEVICE T direction(T /*p*/, T d, T& buffer, T& /*unused*/) const {
    buffer = momentum * buffer + d;
    return ahead * d + look * buffer;
  }
  COHORT_ON_DEVICE void operator()(T& p, T d, T& buffer, T& unused, T& /*unused*/) const {
    p -= rate * direction(p, d, buffer, unused);
  }

  T rate, momentum, ahead, look;
};

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
