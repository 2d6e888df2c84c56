#include "step/exchange/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/strategy.h"

namespace cohort::buckets_test {
namespace {

using ::testing::ElementsAre;

using Order = std::vector<std::size_t>;

// Parameters of these numbers of elements, each with its padding to 16: float32, so 64 bytes for 16 of them.
class Buckets : public ::testing::Test {
 protected:
  explicit Buckets(const std::vector<int64_t>& sizes = {16, 32, 10, 64})
      : strategy_(OneDeviceStrategy("/CPU:0")),
        net_(strategy_.mirror([&] {
          torch::nn::ParameterList list;
          for (const int64_t size : sizes) list->append(torch::zeros({size}, torch::requires_grad()));
          return list;
        })),
        flat_(net_, SGD({.learning_rate = 0.1})) {}

  Strategy strategy_;
  Mirrored<torch::nn::ParameterList> net_;
  FlatParameters flat_;
};

std::vector<Order> parameters_of(const std::vector<Bucket>& buckets) {
  std::vector<Order> list;
  for (const Bucket& bucket : buckets) list.push_back(bucket.parameters);
  return list;
}

TEST_F(Buckets, AreFilledInTheOrderOfTheGradientsAndTheLastIsSmall) {
  const Order order = {3, 1, 0, 2};
  EXPECT_THAT(parameters_of(plan_buckets(flat_, order, {.full = 1, .most_last = 1})),
              ElementsAre(Order{3}, Order{1}, Order{0}, Order{2}));
  EXPECT_THAT(parameters_of(plan_buckets(flat_, order, {.full = 300, .most_last = 64})),
              ElementsAre(Order{1, 3}, Order{0}, Order{2}));
  EXPECT_THAT(parameters_of(plan_buckets(flat_, order, {.full = 300, .most_last = 128})),
              ElementsAre(Order{1, 3}, Order{0, 2}));
  EXPECT_THAT(parameters_of(plan_buckets(flat_, order, {.full = 1 << 20, .most_last = 1 << 20})),
              ElementsAre(Order{0, 1, 2, 3}));
}

TEST_F(Buckets, AreRunsOfTheFlatMemory) {
  const auto buckets = plan_buckets(flat_, Order{0, 2, 1, 3}, {.full = 100, .most_last = 1 << 20});
  ASSERT_EQ(buckets.size(), 1) << "all of it is small";
  EXPECT_THAT(buckets[0].runs, ElementsAre(BucketRun{0, 0, 128}));
  const auto apart = plan_buckets(flat_, Order{0, 2, 1, 3}, {.full = 100, .most_last = 300});
  ASSERT_EQ(apart.size(), 3);
  EXPECT_THAT(apart[0].runs, ElementsAre(BucketRun{0, 0, 16}, BucketRun{0, 48, 64}));
  EXPECT_THAT(apart[1].runs, ElementsAre(BucketRun{0, 16, 48}));
  EXPECT_THAT(apart[2].runs, ElementsAre(BucketRun{0, 64, 128}));
  EXPECT_THAT(apart[2].completed, ElementsAre(3));
}

// Packs cut parameters; one is complete with the last bucket that has a part of it.
TEST_F(Buckets, OfPacksComeWhenTheirLastGradientDoes) {
  const std::vector<std::vector<Pack>> packs = {std::vector<Pack>{{64, 128}, {20, 64}, {0, 20}}};
  const auto buckets = buckets_of_packs(flat_, Order{0, 1, 2, 3}, packs);
  ASSERT_EQ(buckets.size(), 3);
  EXPECT_THAT(parameters_of(buckets), ElementsAre(Order{0, 1}, Order{1, 2}, Order{3}));
  EXPECT_THAT(buckets[0].completed, ElementsAre(0));
  EXPECT_THAT(buckets[1].completed, ElementsAre(1, 2));
  const std::vector<std::vector<Pack>> with_padding = {std::vector<Pack>{{60, 64}, {0, 60}}};
  EXPECT_EQ(buckets_of_packs(flat_, Order{0, 1, 2, 3}, with_padding).size(), 1) << "padding need not travel";
}

}  // namespace
}  // namespace cohort::buckets_test
