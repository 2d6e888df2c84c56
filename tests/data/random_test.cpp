#include "data/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace cohort::random_test {
namespace {

// The first outputs of splitmix64 for the seed 1234567, which its published implementations agree on.
TEST(Random, IsSplitmix64) {
  Random random(1234567);
  for (const uint64_t value : {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL,
                               4593380528125082431ULL, 16408922859458223821ULL}) {
    EXPECT_EQ(random(), value);
  }
}

TEST(Random, BelowIsUniform) {
  Random random(1);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70'000; ++i) ++counts[random.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 400);
  EXPECT_EQ(random.below(1), 0U);
  // A bound over half of the range rejects nearly every second draw, and still no result is out of it.
  for (int i = 0; i < 100; ++i) EXPECT_LT(random.below((1ULL << 63) + 1), (1ULL << 63) + 1);
}

TEST(Random, UniformStaysInItsInterval) {
  Random random(3);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double value = random.uniform(-2.0, 4.0);
    ASSERT_GE(value, -2.0);
    ASSERT_LT(value, 4.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 1.0, 0.06);
}

TEST(Random, StreamsOfASeedDifferAndStatesCanBeSet) {
  std::set<uint64_t> first;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (uint64_t stream = 0; stream < 20; ++stream) first.insert(Random(seed, stream)());
  }
  EXPECT_EQ(first.size(), 400U);
  Random one(5, 2);
  one();
  Random two;
  two.set_state(one.state());
  EXPECT_EQ(one(), two());
}

}  // namespace
}  // namespace cohort::random_test
