// The CUDA cards of this machine, for tests that need them. With COHORT_GPU_TESTS_ON=cpu the CPU stands in for two
// cards, so that what these tests say can be tried where there is none.
#pragma once

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/device.h"

namespace cohort::gpu {

inline bool cpu_stands_in() {
  const char* on = std::getenv("COHORT_GPU_TESTS_ON");
  return on != nullptr && std::string_view(on) == "cpu";
}

inline int cards() {
  return cpu_stands_in() ? 2 : static_cast<int>(torch::cuda::device_count());
}

// Every card is two logical devices from now on.
inline void split_cards() {
  static const bool kDone = [] {
    for (const PhysicalDevice& card : list_physical_devices("GPU")) {
      set_logical_devices(card, {{.memory_limit_mb = 1024}, {.memory_limit_mb = 1024}});
    }
    return true;
  }();
  (void)kDone;
}

// One device of each of the first `count` cards.
inline std::vector<std::string> on_cards(int count) {
  if (cpu_stands_in()) return cpu_devices(count);
  split_cards();
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("/GPU:" + std::to_string(2 * i));
  return names;
}

inline std::vector<std::string> parts_of_one_card() {
  if (cpu_stands_in()) return cpu_devices(2);
  split_cards();
  return {"/GPU:0", "/GPU:1"};
}

}  // namespace cohort::gpu

// ctest counts a test that says this as skipped.
#define COHORT_NEEDS_CARDS(count)     \
  if (cohort::gpu::cards() < (count)) \
  GTEST_SKIP() << "needs " << (count) << " CUDA cards, there are " << cohort::gpu::cards()
// Skips a test of something that a CPU cannot stand in for.
#define COHORT_NEEDS_REAL_CARDS(count)                                                                \
  if (cohort::gpu::cpu_stands_in()) GTEST_SKIP() << "needs " << (count) << " CUDA cards, on the CPU"; \
  COHORT_NEEDS_CARDS(count)
