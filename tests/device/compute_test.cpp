#include "device/compute.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "cohort/compute.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::compute_test {
namespace {

using testing::expect_error;

at::Context& switches() {
  return at::globalContext();
}

TEST(Compute, DeterministicForAsLongAsTheScopeLives) {
  EXPECT_FALSE(switches().deterministicAlgorithms());
  {
    const ComputeScope outer({.deterministic = true});
    EXPECT_TRUE(switches().deterministicAlgorithms());
    EXPECT_FALSE(switches().deterministicAlgorithmsWarnOnly());
    EXPECT_TRUE(switches().deterministicCuDNN());
    EXPECT_FALSE(switches().benchmarkCuDNN());
    begin_convolution_search();
    EXPECT_FALSE(switches().benchmarkCuDNN()) << "which algorithm is the fastest differs from run to run";
    {
      const ComputeScope inner({});
      EXPECT_TRUE(switches().deterministicAlgorithms()) << "what is not said stays";
    }
    EXPECT_TRUE(switches().deterministicAlgorithms());
  }
  EXPECT_FALSE(switches().deterministicAlgorithms());
  EXPECT_FALSE(switches().deterministicCuDNN());
}

TEST(Compute, SumsAtRepeatedIndicesAreTheSameInEveryRun) {
  const ComputeScope compute({.deterministic = true});
  const torch::Tensor index = torch::randint(7, {200'000}, torch::kLong);
  const torch::Tensor values = torch::randn({200'000});
  const auto sum = [&] { return torch::zeros({7}).index_put_({index}, values, /*accumulate=*/true); };
  const torch::Tensor first = sum();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(torch::equal(sum(), first));
}

TEST(Compute, OptionsForGpusWantOne) {
  if (!list_physical_devices("GPU").empty()) GTEST_SKIP() << "there are some here";
  for (const bool on : {false, true}) {
    expect_error<InvalidArgument>([&] { const ComputeScope scope({.tensor_float_32 = on}); },
                                  "tensor_float_32 is set, but this");
    expect_error<InvalidArgument>([&] { const ComputeScope scope({.cudnn_benchmark = on}); },
                                  "cudnn_benchmark is set, but this");
  }
  expect_error<InvalidArgument>([] { const ComputeScope scope({.cudnn_enabled = false}); },
                                "cudnn_enabled is set, but this");
}

TEST(Compute, CublasRepeatsItsSumsWithTwoWorkspaces) {
  EXPECT_EQ(repeatable_workspace(std::nullopt), ":4096:8");
  EXPECT_EQ(repeatable_workspace(":16:8"), ":16:8");
  expect_error<InvalidArgument>([] { repeatable_workspace(":4096:2:16:8"); },
                                "CUBLAS_WORKSPACE_CONFIG is \":4096:2:16:8\", with which cuBLAS does not repeat");
}

TEST(Compute, CudnnSearchesUntilShapesAreMany) {
  switches().setBenchmarkCuDNN(false);
  begin_convolution_search();
  ConvolutionSearch search;
  for (int round = 0; round < 2; ++round) {
    for (int64_t size = 1; size <= static_cast<int64_t>(ConvolutionSearch::kMostShapes); ++size) {
      search.note({size, 3, 32, 32});
    }
  }
  EXPECT_TRUE(switches().benchmarkCuDNN());
  search.note({99, 3, 32, 32});
  EXPECT_FALSE(switches().benchmarkCuDNN());
  begin_convolution_search();
  search.note({100, 3, 32, 32});
  EXPECT_TRUE(switches().benchmarkCuDNN()) << "another strategy has begun it; this model has had its say";
  switches().setBenchmarkCuDNN(false);
}

}  // namespace
}  // namespace cohort::compute_test
