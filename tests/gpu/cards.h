// The CUDA cards of this machine, for tests that need them. With COHORT_GPU_TESTS_ON=stand_in two devices of the tests'
// own are in their place (stand_in.h), so that what these tests say is tried where there is none.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gpu/stand_in.h"

namespace cohort::gpu {

// The cards that tests run on. Each is two logical devices, from the first look on; one that is alone is four.
struct Cards {
  int count = 0;
  bool stand_in = false;
};

// Finds the cards of this machine, or the stand-in's, and splits them.
const Cards& found_cards();

inline bool stands_in() {
  return found_cards().stand_in;
}

inline int cards() {
  return found_cards().count;
}

// Returns how many devices on_cards() has: parts of a card that is alone stand for two.
inline int places() {
  return cards() == 1 ? 2 : cards();
}

// One device of each of the first `count` cards, or two of one that is alone.
inline std::vector<std::string> on_cards(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("/GPU:" + std::to_string(2 * i));
  return names;
}

inline std::vector<std::string> parts_of_one_card() {
  return {"/GPU:0", "/GPU:1"};
}

}  // namespace cohort::gpu

// ctest counts a test that says this as skipped.
#define COHORT_NEEDS_CARDS(count)     \
  if (cohort::gpu::cards() < (count)) \
  GTEST_SKIP() << "needs " << (count) << " CUDA cards, there are " << cohort::gpu::cards()
// Skips a test that needs so many cards, unless parts of one card can replace them.
#define COHORT_NEEDS_PLACES(count)     \
  if (cohort::gpu::places() < (count)) \
  GTEST_SKIP() << "needs " << (count) << " CUDA cards, there are " << cohort::gpu::cards()
// Skips a test of something that nothing can stand in for.
#define COHORT_NEEDS_REAL_CARDS(count)                                                              \
  if (cohort::gpu::stands_in()) GTEST_SKIP() << "needs " << (count) << " CUDA cards that are real"; \
  COHORT_NEEDS_CARDS(count)
// Skips a test of something that cards cannot be made to do, such as to be late.
#define COHORT_NEEDS_THE_STAND_IN() \
  if (!cohort::gpu::stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for"
