// Where a pipeline cuts a Sequential.
#include "wings/pipeline/train/pipeline_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cohort/parallel/pipeline_strategy.h"
#include "cohort/train.h"
#include "tests/support/errors.h"

namespace cohort::pipeline_cut_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

// The largest cost of a part.
double most(const std::vector<double>& costs, std::vector<std::size_t> first) {
  first.push_back(costs.size());
  double largest = 0.0;
  std::size_t begin = 0;
  for (const std::size_t end : first) {
    EXPECT_LT(begin, end);
    largest = std::max(largest, std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(begin),
                                                costs.begin() + static_cast<std::ptrdiff_t>(end), 0.0));
    begin = end;
  }
  return largest;
}

// The best of all cuts, by trying each.
double least(const std::vector<double>& costs, std::size_t parts) {
  double best = std::numeric_limits<double>::infinity();
  for (unsigned chosen = 0; chosen < 1u << (costs.size() - 1); ++chosen) {
    std::vector<std::size_t> first;
    for (std::size_t i = 1; i < costs.size(); ++i) {
      if ((chosen >> (i - 1) & 1u) != 0) first.push_back(i);
    }
    if (first.size() + 1 == parts) best = std::min(best, most(costs, first));
  }
  return best;
}

TEST(PipelineCut, HasTheSmallestLargestPart) {
  EXPECT_THAT(cut_by_cost({1, 1, 1, 1}, 2), ElementsAre(2u));
  EXPECT_THAT(cut_by_cost({5, 1, 1, 1}, 2), ElementsAre(1u));
  EXPECT_TRUE(cut_by_cost({1, 2}, 1).empty());
  torch::manual_seed(3);
  for (std::size_t count = 1; count <= 7; ++count) {
    for (std::size_t parts = 1; parts <= count; ++parts) {
      std::vector<double> costs;
      for (std::size_t i = 0; i < count; ++i) costs.push_back(torch::rand({}).item<double>());
      EXPECT_DOUBLE_EQ(most(costs, cut_by_cost(costs, parts)), least(costs, parts));
    }
  }
}

// The error of a model that is built under a pipeline.
std::string error(const std::vector<Layer>& layers, const PipelineOptions& options) {
  return error_of<InvalidArgument>([&] {
    const PipelineStrategy strategy(options);
    const auto scope = strategy.scope();
    Sequential model(layers, {.name = "net"});
    model.build({4});
  });
}

TEST(PipelineCut, WrongOnesAreNamed) {
  const std::vector<Layer> three = {Dense(4), Dense(3), Dense(2)};
  const std::vector<std::string> two = cpu_devices(2);
  const PipelineOptions interleaved{.devices = two, .schedule = ScheduleInterleaved{}};
  EXPECT_EQ(error(three, {.devices = two}), "no error");
  EXPECT_EQ(error(three, {.devices = cpu_devices(3)}), "no error");
  EXPECT_THAT(error(three, interleaved),
              HasSubstr("[model] net: the model has 3 layers (dense, dense_1, dense_2), which cannot be cut into the 4 "
                        "chunks of a schedule for 2 stages"));
  EXPECT_THAT(error({Dense(4), Stage(), Dense(2)}, interleaved),
              HasSubstr("the model has 1 Stage() layers (stage), wanted 3 for the 4 chunks"));
  EXPECT_THAT(error({Dense(4), Stage(), Dense(2)}, {.devices = two, .cut = {"dense_1"}}),
              HasSubstr("and the model has Stage() layers, too (stage)"));
  EXPECT_THAT(error(three, {.devices = two, .cut = {"dense_7"}}),
              HasSubstr("\"dense_7\" is no layer; the layers are dense, dense_1, dense_2"));
  EXPECT_THAT(error(three, {.devices = two, .cut = {"dense"}}),
              HasSubstr("\"dense\" is not behind the beginning of the chunk before"));
  EXPECT_THAT(error(three, {.devices = cpu_devices(3), .cut = {"dense_1"}}),
              HasSubstr("PipelineOptions::cut has 1 names, wanted 2 for the 3 chunks"));
}

// A relu that comes after a pooling where that is faster comes before a chunk ends.
TEST(PipelineCut, BetweenAConvolutionAndItsPooling) {
  const auto predict = [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    torch::manual_seed(1);
    Sequential model{Conv2D(3, 3, Activation::kRelu), MaxPooling2D({.pool_size = 2}), Flatten(), Dense(2)};
    model.build({1, 8, 8});
    torch::manual_seed(2);
    return model.predict(torch::randn({4, 1, 8, 8}));
  };
  EXPECT_TRUE(torch::equal(
      predict(OneDeviceStrategy("/CPU:0")),
      predict(PipelineStrategy(
          {.devices = cpu_devices(2), .schedule = Schedule1F1B{.microbatches = 1}, .cut = {"max_pooling2d"}}))));
}

}  // namespace
}  // namespace cohort::pipeline_cut_test
