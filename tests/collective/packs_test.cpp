#include "collective/packs.h"

#include <gtest/gtest.h>

#include "cohort/error.h"

namespace cohort::packs_test {
namespace {

std::vector<std::pair<int64_t, int64_t>> ranges(const std::vector<Pack>& packs) {
  std::vector<std::pair<int64_t, int64_t>> list;
  for (const Pack& pack : packs) list.emplace_back(pack.begin, pack.end);
  return list;
}

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

TEST(Packs, OnePackIsEverything) {
  EXPECT_EQ(ranges(plan_packs({0, 10, 30}, 100, 4, {})), (Ranges{{0, 100}}));
}

TEST(Packs, EqualPartsTheLastTakesTheRemainderAndLeavesFirst) {
  EXPECT_EQ(ranges(plan_packs({0, 10, 30}, 100, 4, {.num_packs = 3})), (Ranges{{66, 100}, {33, 66}, {0, 33}}));
}

TEST(Packs, NoPackingMeansOneMessageATensor) {
  EXPECT_EQ(ranges(plan_packs({0, 10, 30}, 100, 4, {.num_packs = 0})), (Ranges{{30, 100}, {10, 30}, {0, 10}}));
}

TEST(Packs, BytesGroupConsecutiveTensorsFromTheEnd) {
  // 400 bytes wanted: the last tensor has 280, with its neighbour 360, with the first 400.
  EXPECT_EQ(ranges(plan_packs({0, 10, 30}, 100, 4, {.bytes_per_pack = 400})), (Ranges{{0, 100}}));
  EXPECT_EQ(ranges(plan_packs({0, 10, 30}, 100, 4, {.bytes_per_pack = 300})), (Ranges{{10, 100}, {0, 10}}));
  EXPECT_EQ(ranges(plan_packs({0, 10, 30}, 100, 4, {.bytes_per_pack = 1})), (Ranges{{30, 100}, {10, 30}, {0, 10}}));
}

TEST(Packs, GrowFromTheFirstOneOn) {
  EXPECT_EQ(
      ranges(plan_packs({0, 10, 20, 30, 40, 50, 60, 70, 80, 90}, 100, 4, {.bytes_per_pack = 160, .first_bytes = 40})),
      (Ranges{{90, 100}, {70, 90}, {30, 70}, {0, 30}}));
}

TEST(Packs, CoverTheBufferWithoutGaps) {
  for (int packs = 0; packs < 12; ++packs) {
    int64_t end = 97;
    for (const Pack& pack : plan_packs({0, 1, 40, 41, 90}, 97, 8, {.num_packs = packs})) {
      EXPECT_EQ(pack.end, end);
      EXPECT_LT(pack.begin, pack.end);
      end = pack.begin;
    }
    EXPECT_EQ(end, 0);
  }
}

TEST(Packs, RefusesNegativeNumbers) {
  EXPECT_THROW(plan_packs({0}, 10, 4, {.num_packs = -1}), InvalidArgument);
  EXPECT_THROW(plan_packs({0}, 10, 4, {.bytes_per_pack = -1}), InvalidArgument);
}

}  // namespace
}  // namespace cohort::packs_test
