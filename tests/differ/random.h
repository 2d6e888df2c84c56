// Random programs that differ from their oracle: numbers from a seed, the search for the smallest one that still does,
// and the loop over seeds. COHORT_SEEDS=N and COHORT_FIRST_SEED=M take N seeds from M on.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace cohort::differ {

// Draws numbers from a seed; the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed * 0x9E3779B97F4A7C15ULL + 1) {}

  // Returns a number of [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  // Returns true once in `times`.
  bool once_in(int64_t times) { return between(1, times) == 1; }

  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(between(0, static_cast<int64_t>(from.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

inline uint64_t number_in(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nothing else runs
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Returns the smallest recipe that still differs, as far as taking one thing away at a time finds it, and how it
// differs. `Recipe` has simpler(), the recipes that are one step simpler, and difference(), which is empty where there
// is none.
template <typename Recipe>
Recipe shrink(Recipe recipe, std::string& difference) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const Recipe& candidate : recipe.simpler()) {
      const std::string found = candidate.difference();
      if (found.empty()) continue;
      recipe = candidate;
      difference = found;
      smaller = true;
      break;
    }
  }
  return recipe;
}

// Tries the recipes of `count` seeds. `Recipe` is made from a Random and has text() beside what shrink() asks for.
template <typename Recipe>
void expect_no_difference(uint64_t count) {
  constexpr int kMostFailures = 3;
  const uint64_t first = number_in("COHORT_FIRST_SEED", 1);
  int failures = 0;
  const uint64_t end = first + number_in("COHORT_SEEDS", count);
  for (uint64_t seed = first; seed < end && failures < kMostFailures; ++seed) {
    Random random(seed);
    const Recipe recipe(random);
    std::string difference = recipe.difference();
    if (difference.empty()) continue;
    ++failures;
    const std::string whole = difference;
    const Recipe smallest = shrink(recipe, difference);
    ADD_FAILURE() << "seed " << seed << ": " << whole << "\n"
                  << recipe.text() << "shrunk: " << difference << "\n"
                  << smallest.text();
  }
}

}  // namespace cohort::differ
