#include "device/cpu/block_cache.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <limits>
#include <thread>

namespace cohort::block_cache_test {
namespace {

constexpr std::size_t kMega = 1 << 20;

class BlockCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_block_cache_limit(0);  // nothing of another test
    set_block_cache_limit(64 * kMega);
  }
};

TEST_F(BlockCacheTest, ReusesBlocksOfTheSameClass) {
  void* first = block_cache::allocate(5 * kMega);
  std::memset(first, 1, 5 * kMega);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0U);
  block_cache::release(first);
  EXPECT_GE(block_cache_stats().idle_bytes, static_cast<int64_t>(5 * kMega));
  const int64_t hits = block_cache_stats().hits;
  void* second = block_cache::allocate(5 * kMega - 3000);
  EXPECT_EQ(second, first);
  EXPECT_EQ(block_cache_stats().hits, hits + 1);
  EXPECT_EQ(block_cache_stats().idle_bytes, 0);
  void* third = block_cache::allocate(5 * kMega);
  EXPECT_NE(third, second);
  block_cache::release(second);
  block_cache::release(third);
}

TEST_F(BlockCacheTest, EverySizeIsCoveredByItsBlock) {
  for (std::size_t power = 16; power < 24; ++power) {
    for (const int64_t apart : {-1, 0, 1, 4096, 12345}) {
      const std::size_t bytes = (std::size_t{1} << power) + static_cast<std::size_t>(apart);
      void* block = block_cache::allocate(bytes);
      std::memset(block, 7, bytes);  // AddressSanitizer and valgrind see an overrun
      block_cache::release(block);
      void* again = block_cache::allocate(bytes);
      if (bytes >= block_cache::kSmallest) {
        EXPECT_EQ(again, block) << bytes;
      }
      block_cache::release(again);
      EXPECT_LE(block_cache_stats().idle_bytes, static_cast<int64_t>(64 * kMega));
    }
    set_block_cache_limit(0);
    set_block_cache_limit(64 * kMega);
  }
  block_cache::release(nullptr);
}

// A size from 2^49 + 1 bytes on had no bin of its own: what lay behind the bins was taken for a block.
TEST_F(BlockCacheTest, WhatNobodyCanHaveIsRefusedAsWithoutACache) {
  if (std::getenv("ASAN_OPTIONS") != nullptr) GTEST_SKIP() << "AddressSanitizer ends the process instead";
  for (int power = 47; power < 64; ++power) {
    for (const std::size_t apart : {std::size_t{0}, std::size_t{1}, (std::size_t{1} << power) / 3}) {
      EXPECT_THROW(block_cache::allocate((std::size_t{1} << power) + apart), c10::Error)
          << "2^" << power << " + " << apart;
    }
  }
  EXPECT_THROW(block_cache::allocate(std::numeric_limits<std::size_t>::max()), c10::Error);
  install_block_cache();
  for (int power = 48; power < 63; ++power) {
    EXPECT_THROW(torch::empty({(int64_t{1} << power) + 1}, torch::kByte), c10::Error) << "2^" << power << " + 1";
  }
  EXPECT_EQ(block_cache_stats().idle_bytes, 0);
}

TEST_F(BlockCacheTest, KeepsNoMoreThanItsLimit) {
  std::vector<void*> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(block_cache::allocate(8 * kMega));
  for (void* block : blocks) block_cache::release(block);
  EXPECT_EQ(block_cache_stats().idle_bytes, static_cast<int64_t>(64 * kMega));
  set_block_cache_limit(20 * kMega);
  EXPECT_EQ(block_cache_stats().idle_bytes, static_cast<int64_t>(16 * kMega));
  set_block_cache_limit(0);
  EXPECT_EQ(block_cache_stats().idle_bytes, 0);
}

TEST_F(BlockCacheTest, ABlockOfAnotherThreadIsFound) {
  void* block = block_cache::allocate(3 * kMega);
  std::async(std::launch::async, [&] { block_cache::release(block); }).get();
  EXPECT_EQ(block_cache::allocate(3 * kMega), block);
  block_cache::release(block);
}

TEST_F(BlockCacheTest, ServesTensors) {
  install_block_cache();
  install_block_cache();
  const auto churn = [](int64_t seed) {
    for (int64_t i = 0; i < 50; ++i) {
      const torch::Tensor a = torch::full({200, 300 + seed}, i);
      torch::Tensor b = a + 1;
      b.resize_({400, 300 + seed});  // asks the allocator for more
      EXPECT_EQ(b[0][0].item<int64_t>(), i + 1);
      EXPECT_EQ(a.sum().item<int64_t>(), i * a.numel());
    }
  };
  std::vector<std::jthread> threads;
  for (int64_t t = 0; t < 4; ++t) threads.emplace_back(churn, t);
  threads.clear();
  EXPECT_TRUE(torch::empty({0}).numel() == 0);
}

}  // namespace
}  // namespace cohort::block_cache_test
