// The arithmetic of one element by the rules SGD, Adam, RMSprop and Adagrad. One step serves all formulations of a
// rule: where they differ is in the scalars that come with it. It is called with the parameter, the gradient as read,
// and three slots, of which it uses kSlots.
#pragma once

#include "optimizer/kernels/update_reader.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

enum class Momentum { kNone, kHeavyBall, kNesterov };

template <typename T, Momentum kMomentum>
struct SgdStep {
  using Number = T;
  using Args = SgdArgs;
  static constexpr int kSlots = kMomentum == Momentum::kNone ? 0 : 1;

  COHORT_ON_DEVICE explicit SgdStep(const SgdArgs& args)
      : rate(static_cast<T>(args.learning_rate)),
        keep(static_cast<T>(args.keep)),
        fresh(static_cast<T>(args.fresh)),
        momentum(static_cast<T>(args.momentum)),
        ahead(static_cast<T>(args.ahead)) {}

  COHORT_ON_DEVICE void operator()(T& p, T d, T& buffer, T& /*unused*/, T& /*unused*/) const {
    if constexpr (kMomentum != Momentum::kNone) {
      const T velocity = keep * buffer + fresh * d;
      buffer = velocity;
      d = kMomentum == Momentum::kNesterov ? ahead * d + momentum * velocity : velocity;
    }
    p -= rate * d;
  }

  T rate, keep, fresh, momentum, ahead;
};

template <typename T, bool kMax>
struct AdamStep {
  using Number = T;
  using Args = AdamArgs;
  static constexpr int kSlots = kMax ? 3 : 2;

  COHORT_ON_DEVICE explicit AdamStep(const AdamArgs& args)
      : keep_1(static_cast<T>(args.beta_1)),
        fresh_1(static_cast<T>(1.0 - args.beta_1)),
        keep_2(static_cast<T>(args.beta_2)),
        fresh_2(static_cast<T>(1.0 - args.beta_2)),
        step_size(static_cast<T>(args.step_size)),
        epsilon(static_cast<T>(args.epsilon)),
        shrink(static_cast<T>(args.shrink)) {}

  COHORT_ON_DEVICE void operator()(T& p, T d, T& m, T& v, T& v_max) const {
    m = keep_1 * m + fresh_1 * d;
    v = keep_2 * v + fresh_2 * d * d;
    T square = v;
    if constexpr (kMax) {
      square = square <= v_max ? v_max : square;  // a NaN stays, as in torch::maximum
      v_max = square;
    }
    p = p * shrink - step_size * m / (root(square) + epsilon);
  }

  T keep_1, fresh_1, keep_2, fresh_2, step_size, epsilon, shrink;
};

template <typename T, bool kCentered, bool kMomentum>
struct RmspropStep {
  using Number = T;
  using Args = RmspropArgs;
  static constexpr int kSlots = 1 + (kCentered ? 1 : 0) + (kMomentum ? 1 : 0);

  COHORT_ON_DEVICE explicit RmspropStep(const RmspropArgs& args)
      : rate(static_cast<T>(args.learning_rate)),
        fresh_rate(static_cast<T>(args.fresh_rate)),
        rho(static_cast<T>(args.rho)),
        fresh(static_cast<T>(1.0 - args.rho)),
        momentum(static_cast<T>(args.momentum)),
        inside(static_cast<T>(args.inside)),
        epsilon(static_cast<T>(args.epsilon)) {}

  // The slots are the squares, then those of mean and momentum that there are.
  COHORT_ON_DEVICE void operator()(T& p, T d, T& v, T& second, T& third) const {
    v = rho * v + fresh * d * d;
    T variance = v;
    if constexpr (kCentered) {
      second = rho * second + fresh * d;
      variance -= second * second;
      // Never negative but for rounding, whose root would be a NaN.
      variance = variance < T(0) ? T(0) : variance;
    }
    T step = fresh_rate * d / (root(variance + inside) + epsilon);
    if constexpr (kMomentum) {
      T& buffer = kCentered ? third : second;
      step = momentum * buffer + step;
      buffer = step;
    }
    p -= rate * step;
  }

  T rate, fresh_rate, rho, fresh, momentum, inside, epsilon;
};

template <typename T>
struct AdagradStep {
  using Number = T;
  using Args = AdagradArgs;
  static constexpr int kSlots = 1;

  COHORT_ON_DEVICE explicit AdagradStep(const AdagradArgs& args)
      : rate(static_cast<T>(args.learning_rate)),
        inside(static_cast<T>(args.inside)),
        epsilon(static_cast<T>(args.epsilon)) {}

  COHORT_ON_DEVICE void operator()(T& p, T d, T& sum, T& /*unused*/, T& /*unused*/) const {
    sum += d * d;
    p -= rate * d / (root(sum + inside) + epsilon);
  }

  T rate, inside, epsilon;
};

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
