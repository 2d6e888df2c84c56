// The very pixels of the drawn digits: the same with every compiler and on every platform.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/data/datasets.h"

namespace cohort::drawn_digits_pixels_test {
namespace {

uint64_t fingerprint(const Dataset& dataset) {
  const Example all = *dataset.batch(dataset.cardinality()).iterator().next();
  const torch::Tensor levels = (all.x * 255).round().to(torch::kByte).contiguous();
  EXPECT_TRUE(torch::equal(levels.to(torch::kDouble).div(255.0).to(torch::kFloat), all.x)) << "256 levels";
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  const auto add = [&](const auto* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) hash = (hash ^ static_cast<uint64_t>(values[i])) * 0x100000001b3ULL;
  };
  add(levels.data_ptr<uint8_t>(), levels.numel());
  add(all.y.data_ptr<int64_t>(), all.y.numel());
  return hash;
}

TEST(DrawnDigits, HaveTheirPixelsOnEveryPlatform) {
  const auto [train, test] = datasets::drawn_digits({.train_size = 1'000, .test_size = 1'000});
  EXPECT_EQ(fingerprint(train), 10827967973622828033ULL);
  EXPECT_EQ(fingerprint(test), 1430787920704711139ULL);
  EXPECT_EQ(fingerprint(train.take(10)), fingerprint(datasets::drawn_digits({.train_size = 10}).train))
      << "a larger set begins with the smaller one";
}

}  // namespace
}  // namespace cohort::drawn_digits_pixels_test
