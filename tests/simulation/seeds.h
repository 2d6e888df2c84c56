// Runs a simulation from many seeds. COHORT_SEEDS=N and COHORT_FIRST_SEED=M take N seeds from M on; a seed that fails
// is run again with its history, which is the same each time, and prints it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/simulation/world.h"

namespace cohort::simulation {

inline uint64_t number_in(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nothing else runs
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// `Simulated` is made from a seed and a World::History; run() returns what is wrong or nothing, history() the history.
template <typename Simulated>
void expect_no_failure(uint64_t seeds) {
  constexpr int kMostFailures = 3;
  const uint64_t first = number_in("COHORT_FIRST_SEED", 1);
  const uint64_t count = number_in("COHORT_SEEDS", seeds);
  int failures = 0;
  for (uint64_t seed = first; seed < first + count && failures < kMostFailures; ++seed) {
    if (Simulated(seed, World::History::kNone).run().empty()) continue;
    ++failures;
    Simulated again(seed, World::History::kKept);
    const std::string what = again.run();
    ADD_FAILURE() << "seed " << seed << " of those from " << first << " on: " << what << "\n" << again.history();
  }
}

template <typename Simulated>
void expect_one_history() {
  for (const uint64_t seed : {7, 8}) {
    Simulated one(seed, World::History::kKept);
    Simulated other(seed, World::History::kKept);
    EXPECT_EQ(one.run(), other.run());
    EXPECT_EQ(one.history(), other.history());
    EXPECT_FALSE(one.history().empty());
  }
}

}  // namespace cohort::simulation
