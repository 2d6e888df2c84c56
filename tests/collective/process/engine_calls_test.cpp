// Calls that are cut to the size that an engine can count.
#include "collective/process/engine_calls.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace cohort::engine_calls_test {
namespace {

constexpr int64_t kMost = 64;  // bytes of a call

// The engine of rank 0 of three that all have the same.
class Triplet final : public Engine {
 public:
  bool adds(torch::ScalarType /*dtype*/) const override { return true; }
  void all_reduce(const torch::Tensor& flat) override {
    count(flat.nbytes());
    flat.mul_(3);
  }
  void reduce_scatter(const std::vector<torch::Tensor>& parts, const torch::Tensor& sum) override {
    count(at::cat(parts).nbytes());
    sum.copy_(parts[0] * 3);
  }
  void all_gather(const torch::Tensor& own, const std::vector<int64_t>& sizes, const torch::Tensor& all) override {
    count(all.nbytes());
    EXPECT_EQ(sizes, std::vector<int64_t>(3, static_cast<int64_t>(own.nbytes())));
    all.copy_(at::cat({own, own, own}));
  }
  void broadcast(const torch::Tensor& bytes, int root) override {
    count(bytes.nbytes());
    bytes.fill_(root);
  }
  void abort() noexcept override {}

  int calls = 0;

 private:
  void count(std::size_t bytes) {
    ++calls;
    EXPECT_GT(bytes, 0U);
    EXPECT_LE(bytes, static_cast<std::size_t>(kMost));
  }
};

TEST(EngineCalls, AreCutWhereAnEngineCannotCountThem) {
  for (const int64_t rows : {0, 1, 2, 3, 16, 17, 100}) {
    Triplet engine;
    const torch::Tensor values = torch::arange(rows * 2, torch::kFloat).view({rows, 2});
    torch::Tensor sum = values.clone().view({-1});
    engine_sum(engine, sum, kMost);
    EXPECT_TRUE(torch::equal(sum, values.view({-1}) * 3)) << rows;
    EXPECT_EQ(engine.calls, (rows * 8 + kMost - 1) / kMost);
    EXPECT_TRUE(torch::equal(engine_pieces(engine, {values, values, values}, 0, kMost), values * 3)) << rows;
    const std::vector<torch::Tensor> all = engine_gather(engine, values, {rows, rows, rows}, kMost);
    ASSERT_EQ(all.size(), 3U);
    for (const torch::Tensor& each : all) EXPECT_TRUE(torch::equal(each, values)) << rows;
    torch::Tensor copy = values.clone();
    engine_broadcast(engine, copy, 7, kMost);
    EXPECT_TRUE(torch::equal(copy, torch::full_like(values, 7))) << rows;
  }
}

}  // namespace
}  // namespace cohort::engine_calls_test
