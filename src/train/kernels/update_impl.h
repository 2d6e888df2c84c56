// The update kernels' one source, compiled once a variant (COHORT_VARIANT) with other flags; see base/kernels/vector_impl.h
// for why it uses nothing of the standard library. Formulas are PyTorch's (torch/optim), so that numbers agree.
#include "train/kernels/update_table.h"

#define COHORT_JOIN_(a, b) a##b
#define COHORT_JOIN(a, b) COHORT_JOIN_(a, b)

namespace cohort::kernels {
namespace {

inline float root(float x) {
  return __builtin_sqrtf(x);
}
inline double root(double x) {
  return __builtin_sqrt(x);
}

// GradientArgs in the parameters' type. A NaN passes the clip, because both comparisons are false.
template <typename T>
struct Reader {
  T scale;
  T low;
  T high;
  T decay;

  explicit Reader(const GradientArgs& in)
      : scale(static_cast<T>(in.scale)),
        low(in.clip > 0.0 ? static_cast<T>(-in.clip) : -static_cast<T>(__builtin_inf())),
        high(in.clip > 0.0 ? static_cast<T>(in.clip) : static_cast<T>(__builtin_inf())),
        decay(static_cast<T>(in.decay)) {}

  T operator()(T g, T p) const {
    T x = g * scale;
    x = x < low ? low : x;
    x = x > high ? high : x;
    return x + decay * p;
  }
};

template <typename T>
void sgd(T* __restrict p, const T* __restrict g, T* __restrict buffer, int64_t n, GradientArgs in, SgdArgs args) {
  const Reader<T> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  if (buffer == nullptr) {
    for (int64_t i = 0; i < n; ++i) p[i] -= rate * read(g[i], p[i]);
    return;
  }
  const T momentum = args.first ? T(0) : static_cast<T>(args.momentum);
  const T fresh = args.first ? T(1) : static_cast<T>(1.0 - args.dampening);
  const T look = static_cast<T>(args.momentum);
  if (args.nesterov) {
    for (int64_t i = 0; i < n; ++i) {
      const T d = read(g[i], p[i]);
      buffer[i] = momentum * buffer[i] + fresh * d;
      p[i] -= rate * (d + look * buffer[i]);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      buffer[i] = momentum * buffer[i] + fresh * read(g[i], p[i]);
      p[i] -= rate * buffer[i];
    }
  }
}

template <typename T>
void adam(T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v, T* __restrict v_max, int64_t n,
          GradientArgs in, AdamArgs args) {
  const Reader<T> read(in);
  const T b1 = static_cast<T>(args.beta_1);
  const T c1 = static_cast<T>(1.0 - args.beta_1);
  const T b2 = static_cast<T>(args.beta_2);
  const T c2 = static_cast<T>(1.0 - args.beta_2);
  const T correction = static_cast<T>(args.sqrt_correction);
  const T epsilon = static_cast<T>(args.epsilon);
  const T step = static_cast<T>(args.step_size);
  const T shrink = static_cast<T>(args.shrink);
  if (v_max == nullptr) {
    for (int64_t i = 0; i < n; ++i) {
      const T d = read(g[i], p[i]);
      m[i] = b1 * m[i] + c1 * d;
      v[i] = b2 * v[i] + c2 * d * d;
      p[i] = p[i] * shrink - step * m[i] / (root(v[i]) / correction + epsilon);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      const T d = read(g[i], p[i]);
      m[i] = b1 * m[i] + c1 * d;
      v[i] = b2 * v[i] + c2 * d * d;
      v_max[i] = v_max[i] > v[i] ? v_max[i] : v[i];
      p[i] = p[i] * shrink - step * m[i] / (root(v_max[i]) / correction + epsilon);
    }
  }
}

template <typename T>
void rmsprop(T* __restrict p, const T* __restrict g, T* __restrict v, T* __restrict mean, T* __restrict buffer, int64_t n,
             GradientArgs in, RmspropArgs args) {
  const Reader<T> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T rho = static_cast<T>(args.rho);
  const T fresh = static_cast<T>(1.0 - args.rho);
  const T momentum = static_cast<T>(args.momentum);
  const T epsilon = static_cast<T>(args.epsilon);
  // Blocks, so that each loop is simple enough to be vectorised.
  constexpr int64_t kBlock = 256;
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = n - at < kBlock ? n - at : kBlock;
    T d[kBlock];
    T variance[kBlock];
    for (int64_t i = 0; i < count; ++i) {
      d[i] = read(g[at + i], p[at + i]);
      v[at + i] = rho * v[at + i] + fresh * d[i] * d[i];
      variance[i] = v[at + i];
    }
    if (mean != nullptr) {
      for (int64_t i = 0; i < count; ++i) {
        mean[at + i] = rho * mean[at + i] + fresh * d[i];
        variance[i] -= mean[at + i] * mean[at + i];
      }
    }
    for (int64_t i = 0; i < count; ++i) d[i] = d[i] / (root(variance[i]) + epsilon);
    if (buffer != nullptr) {
      for (int64_t i = 0; i < count; ++i) {
        buffer[at + i] = momentum * buffer[at + i] + d[i];
        d[i] = buffer[at + i];
      }
    }
    for (int64_t i = 0; i < count; ++i) p[at + i] -= rate * d[i];
  }
}

template <typename T>
void adagrad(T* __restrict p, const T* __restrict g, T* __restrict sum, int64_t n, GradientArgs in, AdagradArgs args) {
  const Reader<T> read(in);
  const T rate = static_cast<T>(args.learning_rate);
  const T epsilon = static_cast<T>(args.epsilon);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    sum[i] += d * d;
    p[i] -= rate * (d / (root(sum[i]) + epsilon));
  }
}

template <typename T>
void lamb_direction(const T* __restrict p, T* __restrict g, T* __restrict m, T* __restrict v, int64_t n, GradientArgs in,
                    LambArgs args) {
  const Reader<T> read(in);
  const T b1 = static_cast<T>(args.beta_1);
  const T c1 = static_cast<T>(1.0 - args.beta_1);
  const T b2 = static_cast<T>(args.beta_2);
  const T c2 = static_cast<T>(1.0 - args.beta_2);
  const T correction_1 = static_cast<T>(args.correction_1);
  const T correction_2 = static_cast<T>(args.correction_2);
  const T epsilon = static_cast<T>(args.epsilon);
  const T decay = static_cast<T>(args.weight_decay);
  for (int64_t i = 0; i < n; ++i) {
    const T d = read(g[i], p[i]);
    m[i] = b1 * m[i] + c1 * d;
    v[i] = b2 * v[i] + c2 * d * d;
    g[i] = (m[i] / correction_1) / (root(v[i] / correction_2) + epsilon) + decay * p[i];
  }
}

template <typename T>
void lars(T* __restrict p, const T* __restrict g, T* __restrict buffer, int64_t n, LarsArgs args) {
  const T rate = static_cast<T>(args.learning_rate);
  const T momentum = static_cast<T>(args.momentum);
  const T decay = static_cast<T>(args.weight_decay);
  const T look = args.nesterov ? momentum : T(0);
  const T now = args.nesterov ? T(1) : T(0);
  const T keep = args.nesterov ? look : T(1);
  for (int64_t i = 0; i < n; ++i) {
    const T d = rate * (g[i] + decay * p[i]);
    buffer[i] = momentum * buffer[i] + d;
    p[i] -= keep * buffer[i] + now * d;
  }
}

template <typename T>
void read_gradient(const T* __restrict p, T* __restrict g, int64_t n, GradientArgs in) {
  const Reader<T> read(in);
  for (int64_t i = 0; i < n; ++i) g[i] = read(g[i], p[i]);
}

template <typename T>
void subtract(T* __restrict p, const T* __restrict g, int64_t n, double rate) {
  const T factor = static_cast<T>(rate);
  for (int64_t i = 0; i < n; ++i) p[i] -= factor * g[i];
}

template <typename T>
UpdateTable<T> table() {
  return {sgd<T>, adam<T>, rmsprop<T>, adagrad<T>, lamb_direction<T>, lars<T>, read_gradient<T>, subtract<T>};
}

}  // namespace

UpdateTables COHORT_JOIN(update_tables_, COHORT_VARIANT)() {
  return {table<float>(), table<double>()};
}

}  // namespace cohort::kernels
