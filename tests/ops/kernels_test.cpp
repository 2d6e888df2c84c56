#include "ops/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cohort/error.h"
#include "ops/kernels/isa.h"
#include "ops/kernels/pool_shape.h"
#include "ops/kernels/vector_table.h"

namespace cohort::kernels::kernels_test {
namespace {

template <typename T>
constexpr c10::ScalarType kDtype = sizeof(T) == 4 ? c10::ScalarType::Float : c10::ScalarType::Double;

template <typename T>
std::vector<T> numbers(int64_t n, uint32_t seed) {
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<T>(static_cast<double>(seed) / 1e9 - 2.0);
  }
  return values;
}

template <typename T>
const Kernels<T>& kernels_of(Isa isa) {
  const Table& table = isa == Isa::kAvx512 ? avx512::kTable : isa == Isa::kAvx2 ? avx2::kTable : baseline::kTable;
  if constexpr (sizeof(T) == 4) {
    return table.f32;
  } else {
    return table.f64;
  }
}

// Returns the sum in the order that squared_norm promises: sixteen running sums, then a tree.
template <typename T>
double squared_norm_by_hand(const T* src, int64_t n) {
  double lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] += static_cast<double>(src[i]) * static_cast<double>(src[i]);
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

template <typename T>
class KernelsTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(KernelsTest, Types);

constexpr int64_t kSizes[] = {0, 1, 7, 15, 16, 17, 31, 33, 100, 511, 512, 513, 1500};

TYPED_TEST(KernelsTest, SumsFromLeftToRight) {
  using T = TypeParam;
  for (const int count : {1, 2, 3, 4, 5, 8, 64}) {
    for (const int64_t n : kSizes) {
      std::vector<std::vector<T>> data;
      std::vector<const void*> sources;
      for (int s = 0; s < count; ++s) data.push_back(numbers<T>(n, static_cast<uint32_t>(s + 1)));
      for (const auto& source : data) sources.push_back(source.data());
      std::vector<T> wanted = data[0];
      for (int s = 1; s < count; ++s) {
        for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += data[static_cast<std::size_t>(s)][i];
      }
      std::vector<T> sum(static_cast<std::size_t>(n));
      sum_into(sum.data(), sources.data(), count, n, kDtype<T>);
      EXPECT_EQ(sum, wanted) << count << " sources of " << n;

      // The result goes into the last source.
      sum_into(data.back().data(), sources.data(), count, n, kDtype<T>);
      EXPECT_EQ(data.back(), wanted) << count << " sources of " << n << ", into the last";
    }
  }
}

TYPED_TEST(KernelsTest, AddsAndScales) {
  using T = TypeParam;
  for (const int64_t n : kSizes) {
    const std::vector<T> a = numbers<T>(n, 1);
    const std::vector<T> b = numbers<T>(n, 2);
    std::vector<T> sum = a;
    std::vector<T> wanted = a;
    for (std::size_t i = 0; i < a.size(); ++i) wanted[i] += b[i];
    add_into(sum.data(), b.data(), n, kDtype<T>);
    EXPECT_EQ(sum, wanted);
    for (T& value : wanted) value *= static_cast<T>(1.0 / 3.0);
    scale(sum.data(), 1.0 / 3.0, n, kDtype<T>);
    EXPECT_EQ(sum, wanted);
  }
}

TYPED_TEST(KernelsTest, SquaredNormKeepsItsOrder) {
  using T = TypeParam;
  for (const int64_t n : kSizes) {
    const std::vector<T> a = numbers<T>(n, 3);
    EXPECT_EQ(squared_norm(a.data(), n, kDtype<T>), squared_norm_by_hand(a.data(), n)) << n;
  }
  const std::vector<T> large(1000, std::sqrt(std::numeric_limits<T>::max() / T(2)));
  EXPECT_EQ(std::isfinite(squared_norm(large.data(), 1000, kDtype<T>)), sizeof(T) == 4);
}

TYPED_TEST(KernelsTest, FindsWhatIsNotFinite) {
  using T = TypeParam;
  for (const int64_t n : kSizes) {
    std::vector<T> values = numbers<T>(n, 4);
    EXPECT_TRUE(all_finite(values.data(), n, kDtype<T>)) << n;
    for (std::size_t at : {std::size_t{0}, values.size() / 2, values.size() - 1}) {
      if (values.empty()) continue;
      for (const T odd : {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(),
                          std::numeric_limits<T>::quiet_NaN()}) {
        const T before = values[at];
        values[at] = odd;
        EXPECT_FALSE(all_finite(values.data(), n, kDtype<T>)) << odd << " at " << at << " of " << n;
        values[at] = before;
      }
      values[at] = std::numeric_limits<T>::max();
      EXPECT_TRUE(all_finite(values.data(), n, kDtype<T>));
      values[at] = std::numeric_limits<T>::denorm_min();
      EXPECT_TRUE(all_finite(values.data(), n, kDtype<T>));
    }
  }
}

TYPED_TEST(KernelsTest, GiveTheSameBitsForEveryInstructionSet) {
  using T = TypeParam;
  constexpr int64_t kSize = 1003;
  const std::vector<T> a = numbers<T>(kSize, 5);
  const std::vector<T> b = numbers<T>(kSize, 6);
  const std::vector<T> c = numbers<T>(kSize, 7);
  const void* sources[] = {a.data(), b.data(), c.data()};
  std::vector<T> first(kSize);
  kernels_of<T>(Isa::kBaseline).sum_into(first.data(), sources, 3, kSize);
  for (const Isa isa : kIsas) {
    if (!runs(isa)) continue;
    std::vector<T> sum(kSize);
    kernels_of<T>(isa).sum_into(sum.data(), sources, 3, kSize);
    EXPECT_EQ(sum, first) << name(isa);
    EXPECT_EQ(kernels_of<T>(isa).squared_norm(a.data(), kSize),
              kernels_of<T>(Isa::kBaseline).squared_norm(a.data(), kSize))
        << name(isa);
  }
}

TEST(Isa, TheBaselineAlwaysRuns) {
  EXPECT_TRUE(runs(Isa::kBaseline));
  EXPECT_TRUE(runs(best_isa()));
}

TEST(Kernels, RefuseOtherDtypesAndNoSource) {
  float values[4] = {};
  EXPECT_THROW(scale(values, 2.0, 4, c10::ScalarType::Half), InvalidArgument);
  EXPECT_THROW(squared_norm(values, 4, c10::ScalarType::Long), InvalidArgument);
  EXPECT_THROW(sum_into(values, nullptr, 0, 4, c10::ScalarType::Float), InvalidArgument);
  EXPECT_FALSE(has_kernels(c10::ScalarType::BFloat16));
}

TYPED_TEST(KernelsTest, BiasesAndTheirGradients) {
  using T = TypeParam;
  for (const Isa isa : kIsas) {
    if (isa > best_isa()) continue;
    const Kernels<T>& own = kernels_of<T>(isa);
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {3, 17}, {130, 33}, {65, 1030}}) {
      const int64_t stride = columns + 3;
      const int64_t n = rows * stride;
      std::vector<T> y = numbers<T>(n, 1);
      const std::vector<T> before = y, bias = numbers<T>(columns, 2), gradient = numbers<T>(n, 3);
      own.add_bias(y.data(), bias.data(), rows, columns, stride, /*relu=*/true);
      std::vector<T> passed = gradient, sums(static_cast<std::size_t>(columns)), plain = sums;
      own.bias_gradient(passed.data(), passed.data(), y.data(), sums.data(), rows, columns, stride);
      own.bias_gradient(nullptr, gradient.data(), nullptr, plain.data(), rows, columns, stride);
      for (int64_t j = 0; j < columns; ++j) {
        double sum = 0.0, of_all = 0.0;
        for (int64_t r = 0; r < rows; ++r) {
          const auto at = static_cast<std::size_t>(r * stride + j);
          const T wanted = std::max(before[at] + bias[static_cast<std::size_t>(j)], T(0));
          ASSERT_EQ(y[at], wanted);
          ASSERT_EQ(passed[at], wanted > T(0) ? gradient[at] : T(0));
          sum += static_cast<double>(passed[at]);
          of_all += static_cast<double>(gradient[at]);
        }
        const double room = sizeof(T) == 4 ? 1e-4 : 1e-12;
        ASSERT_NEAR(static_cast<double>(sums[static_cast<std::size_t>(j)]), sum, room);
        ASSERT_NEAR(static_cast<double>(plain[static_cast<std::size_t>(j)]), of_all, room);
      }
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = columns; j < stride; ++j) {
          ASSERT_EQ(y[static_cast<std::size_t>(r * stride + j)], before[static_cast<std::size_t>(r * stride + j)]);
        }
      }
    }
  }
  T nan = std::numeric_limits<T>::quiet_NaN(), zero = 0;
  add_bias(&nan, &zero, {.rows = 1, .columns = 1, .stride = 1}, /*relu=*/true, kDtype<T>);
  EXPECT_TRUE(std::isnan(nan)) << "as LibTorch's ReLU";
}

// The pooling of one image, an element at a time.
template <typename T>
struct Pooled {
  std::vector<T> y, dst, sums;
  std::vector<uint8_t> places;

  Pooled(const PoolShape& s, const std::vector<T>& image, const std::vector<T>& bias, const std::vector<T>& gradient) {
    dst.resize(image.size());
    sums.resize(bias.size());
    for (int64_t window = 0; window < s.windows_down * s.windows_across; ++window) {
      for (int64_t channel = 0; channel < s.channels; ++channel) {
        const int64_t top = window / s.windows_across * s.stride_down - s.above;
        const int64_t left = window % s.windows_across * s.stride_across - s.left;
        int64_t place = -1, most = 0;
        for (int64_t i = 0; i < s.window_height * s.window_width; ++i) {
          const int64_t row = top + i / s.window_width, column = left + i % s.window_width;
          if (row < 0 || row >= s.height || column < 0 || column >= s.width) continue;
          const int64_t at = (row * s.width + column) * s.channels + channel;
          if (place < 0 || image[static_cast<std::size_t>(at)] > image[static_cast<std::size_t>(most)]) {
            place = i;
            most = at;
          }
        }
        y.push_back(std::max(image[static_cast<std::size_t>(most)] + bias[static_cast<std::size_t>(channel)], T(0)));
        places.push_back(static_cast<uint8_t>(place));
        const T passed = y.back() > T(0) ? gradient[y.size() - 1] : T(0);
        dst[static_cast<std::size_t>(most)] += passed;
        sums[static_cast<std::size_t>(channel)] += passed;
      }
    }
  }
};

TYPED_TEST(KernelsTest, PoolsImagesAndTheirGradients) {
  using T = TypeParam;
  for (const int64_t channels : {1, 31, 103, 600}) {
    for (const PoolShape& shape : {PoolShape{5, 4, channels, 2, 2, 2, 2, 2, 2, 0, 0},     // a row is in no window
                                   PoolShape{5, 4, channels, 5, 4, 3, 3, 1, 1, 1, 1},     // windows overlap
                                   PoolShape{5, 4, channels, 3, 1, 2, 3, 2, 3, 0, 0}}) {  // and reach beyond the end
      const auto n = static_cast<std::size_t>(shape.windows_down * shape.windows_across * channels);
      const std::vector<T> image = numbers<T>(20 * channels, 1), bias = numbers<T>(channels, 2);
      const std::vector<T> gradient = numbers<T>(static_cast<int64_t>(n), 3);
      const Pooled<T> wanted(shape, image, bias, gradient);
      for (const Isa isa : kIsas) {
        if (isa > best_isa()) continue;
        const Kernels<T>& own = kernels_of<T>(isa);
        std::vector<T> y(n), dst(image.size(), T(9)), sums(bias.size(), T(9));
        std::vector<uint8_t> places(n);
        own.max_pool(y.data(), places.data(), image.data(), bias.data(), shape, /*relu=*/true);
        EXPECT_EQ(y, wanted.y);
        EXPECT_EQ(places, wanted.places);
        own.max_pool_gradient(dst.data(), sums.data(), gradient.data(), y.data(), places.data(), shape);
        EXPECT_EQ(dst, wanted.dst);
        EXPECT_EQ(sums, wanted.sums);
        own.max_pool_gradient(dst.data(), sums.data(), gradient.data(), nullptr, places.data(), shape);
        std::vector<T> least(n), largest(n);
        own.max_pool(least.data(), places.data(), image.data(), nullptr, shape, /*relu=*/false);
        own.max_pool(largest.data(), places.data(), image.data(), nullptr, shape, /*relu=*/true);
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(largest[i], std::max(least[i], T(0)));
      }
    }
  }
}

TYPED_TEST(KernelsTest, EntropiesAndTheirGradients) {
  using T = TypeParam;
  const double room = sizeof(T) == 4 ? 2e-6 : 1e-14;
  for (const auto& [rows, classes] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {2, 16}, {5, 1031}}) {
    std::vector<T> logits = numbers<T>(rows * classes, 1);
    for (T& logit : logits) logit *= T(10);
    logits.front() = T(-1000);
    std::vector<int64_t> labels;
    for (int64_t row = 0; row < rows; ++row) labels.push_back(row % classes);
    const std::vector<T> factors = numbers<T>(rows, 2);
    std::vector<T> first;  // of the first instruction set, whose bits all have
    for (const Isa isa : kIsas) {
      if (isa > best_isa()) continue;
      const Kernels<T>& own = kernels_of<T>(isa);
      std::vector<T> all(static_cast<std::size_t>(rows * (classes + 3)));  // losses, shifts, gradients
      T* const shifts = all.data() + rows;
      T* const gradient = shifts + 2 * rows;
      own.entropy(all.data(), shifts, logits.data(), labels.data(), rows, classes);
      own.entropy_gradient(gradient, factors.data(), 1, logits.data(), labels.data(), shifts, rows, classes);
      if (first.empty()) first = all;
      ASSERT_EQ(std::memcmp(first.data(), all.data(), all.size() * sizeof(T)), 0);
      for (int64_t row = 0; row < rows; ++row) {
        const T* const own_logits = logits.data() + row * classes;
        const double most = static_cast<double>(*std::max_element(own_logits, own_logits + classes));
        double sum = 0.0;
        for (int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(own_logits[c]) - most);
        const double log = std::log(sum) + most;
        const double label = static_cast<double>(own_logits[labels[static_cast<std::size_t>(row)]]);
        ASSERT_NEAR(static_cast<double>(all[static_cast<std::size_t>(row)]), log - label, room * (1.0 + log - label));
        for (int64_t c = 0; c < classes; ++c) {
          const double power = std::exp(static_cast<double>(own_logits[c]) - log);
          const double wanted = power - (c == labels[static_cast<std::size_t>(row)] ? 1.0 : 0.0);
          const double factor = static_cast<double>(factors[static_cast<std::size_t>(row)]);
          ASSERT_NEAR(static_cast<double>(gradient[row * classes + c]), wanted * factor, room * std::abs(factor));
        }
      }
    }
  }
}

}  // namespace
}  // namespace cohort::kernels::kernels_test
