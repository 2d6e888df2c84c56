#include "collective/algorithms/cross_device_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/error.h"
#include "collective/devices/nccl.h"
#include "tests/support/ranks.h"

namespace cohort::cross_device_sum_test {
namespace {

using ::testing::HasSubstr;
using testing::with_ranks;

class CrossDevice : public ::testing::TestWithParam<std::string_view> {};

TEST_P(CrossDevice, SumsAndAveragesAllSizesAndDtypes) {
  for (const int size : {1, 2, 3, 4, 5}) {
    for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kLong, torch::kBFloat16}) {
      for (const int64_t count : {0, 1, 15, 16, 17, 100, 20'000}) {
        with_ranks(size, {.ops = GetParam()}, [=](Communicator& world) {
          std::vector<torch::Tensor> tensors{torch::arange(count, dtype) * (world.rank() + 1),
                                             torch::full({3}, 2, dtype)};
          const torch::Tensor expected = torch::arange(count, dtype) * (size * (size + 1) / 2);
          world.all_reduce(tensors, ReduceOp::kSum);
          if (dtype != torch::kBFloat16) {
            EXPECT_TRUE(torch::equal(tensors[0], expected));
          }
          EXPECT_TRUE(torch::equal(tensors[1], torch::full({3}, 2 * size, dtype)));
          std::vector<torch::Tensor> mean{torch::full({5}, world.rank() * 2, dtype)};
          world.all_reduce(mean, ReduceOp::kMean);
          EXPECT_TRUE(torch::equal(mean[0], torch::full({5}, size - 1, dtype)));
        });
      }
    }
  }
}

// In bfloat16 the second and the third addition would be rounded away.
TEST(CrossDeviceHalf, IsAddedUpInFloat32) {
  for (const std::string_view ops : {"ring", "reduction_to_one_device"}) {
    with_ranks(3, {.ops = ops}, [](Communicator& world) {
      torch::Tensor mine = torch::full({40}, world.rank() == 0 ? 1.0 : std::pow(2.0, -8), torch::kBFloat16);
      world.all_reduce({&mine, 1}, ReduceOp::kSum);
      EXPECT_TRUE(torch::equal(mine, torch::full({40}, 1.0 + std::pow(2.0, -7), torch::kBFloat16)));
    });
  }
}

TEST_P(CrossDevice, IsBitIdenticalOnAllRanksAndFromRunToRun) {
  std::vector<torch::Tensor> results;
  for (int run = 0; run < 4; ++run) {
    std::vector<torch::Tensor> own(4);
    with_ranks(4, {.ops = GetParam()}, [&](Communicator& world) {
      auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(world.rank()));
      torch::Tensor mine = torch::randn({10'001}, generator);
      world.all_reduce({&mine, 1}, ReduceOp::kSum);
      own[static_cast<std::size_t>(world.rank())] = mine;
    });
    for (const torch::Tensor& mine : own) EXPECT_TRUE(torch::equal(mine, own[0]));
    results.push_back(own[0]);
  }
  for (const torch::Tensor& result : results) EXPECT_TRUE(torch::equal(result, results[0]));
}

TEST_P(CrossDevice, ReduceScatterGivesTheBitsOfAllReduce) {
  for (const int size : {1, 2, 3, 5}) {
    for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kLong, torch::kBFloat16}) {
      with_ranks(size, {.ops = GetParam()}, [=](Communicator& world) {
        auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(world.rank()));
        const torch::Tensor mine = (torch::randn({size * 7, 3}, generator) * 100).to(dtype);
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
          torch::Tensor whole = mine.clone();
          world.all_reduce({&whole, 1}, op);
          EXPECT_TRUE(torch::equal(world.reduce_scatter(mine, op), whole.narrow(0, world.rank() * 7, 7))) << dtype;
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CrossDevice,
                         ::testing::Values("auto", "ring", "reduction_to_one_device", "hierarchical_copy"));

TEST(CrossDeviceSums, AutoPicksByDevice) {
  EXPECT_EQ(make_cross_device_sum("auto", {torch::kCPU, torch::kCPU}).name, "ring");
  EXPECT_EQ(make_cross_device_sum("auto", {torch::kCPU, torch::Device(torch::kCUDA, 0)}).name,
            "reduction_to_one_device");
  // Two logical devices of one GPU cannot use NCCL.
  EXPECT_EQ(make_cross_device_sum("auto", {torch::Device(torch::kCUDA, 0), torch::Device(torch::kCUDA, 0)}).name,
            "ring");
}

TEST(CrossDeviceSums, AnUnknownNameListsTheKnownOnes) {
  try {
    make_cross_device_sum("tree", {torch::kCPU});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"tree\" are not known, only auto, nccl, ring, reduction_to_one_device"));
  }
}

TEST(CrossDeviceSums, NcclWithoutNcclSaysSo) {
  if (has_nccl()) {
    EXPECT_THROW(make_cross_device_sum("nccl", {torch::kCPU}), InvalidArgument);
  } else {
    EXPECT_THROW(make_cross_device_sum("nccl", {torch::kCPU}), Unimplemented);
  }
}

}  // namespace
}  // namespace cohort::cross_device_sum_test
