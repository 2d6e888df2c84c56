// The CUDA cards of this machine, for tests that need them. With COHORT_GPU_TESTS_ON=stand_in two devices of the tests'
// own are in their place (stand_in.h), so that what these tests say is tried where there is none.
#pragma once

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/libtorch_compat.h"
#include "cohort/device.h"
#include "tests/gpu/stand_in.h"

namespace cohort::gpu {

// LibTorch 2.15's autograd asks CUDA for the streams of whatever device there is, where it was built with CUDA.
inline bool can_be_stood_in_for() {
#if COHORT_TORCH_AT_LEAST(2, 15)
  return !at::Context::hasCUDART() || torch::cuda::device_count() > 0;
#else
  return true;
#endif
}

inline bool stands_in() {
  static const bool kStandsIn = [] {
    const char* on = std::getenv("COHORT_GPU_TESTS_ON");
    if (on == nullptr || std::string_view(on) != "stand_in") return false;
    if (!can_be_stood_in_for()) {
      std::cout << "nothing can stand in for cards: this LibTorch has CUDA, and its autograd needs a driver\n";
      return false;
    }
    stand_in_for_cards(2);
    return true;
  }();
  return kStandsIn;
}

inline int cards() {
  return stands_in() ? 2 : static_cast<int>(torch::cuda::device_count());
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
  split_cards();
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("/GPU:" + std::to_string(2 * i));
  return names;
}

inline std::vector<std::string> parts_of_one_card() {
  split_cards();
  return {"/GPU:0", "/GPU:1"};
}

}  // namespace cohort::gpu

// ctest counts a test that says this as skipped.
#define COHORT_NEEDS_CARDS(count)     \
  if (cohort::gpu::cards() < (count)) \
  GTEST_SKIP() << "needs " << (count) << " CUDA cards, there are " << cohort::gpu::cards()
// Skips a test of something that nothing can stand in for.
#define COHORT_NEEDS_REAL_CARDS(count)                                                              \
  if (cohort::gpu::stands_in()) GTEST_SKIP() << "needs " << (count) << " CUDA cards that are real"; \
  COHORT_NEEDS_CARDS(count)
// Skips a test of something that cards cannot be made to do, such as to be late.
#define COHORT_NEEDS_THE_STAND_IN() \
  if (!cohort::gpu::stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for"
