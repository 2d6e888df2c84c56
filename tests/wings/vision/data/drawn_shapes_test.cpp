#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/data/datasets.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::drawn_shapes_test {
namespace {

Example everything(const Dataset& dataset) {
  return *dataset.batch(dataset.cardinality()).iterator().next();
}

TEST(DrawnShapes, AreTheSameEveryTimeAndHaveAllClasses) {
  const datasets::DrawnShapesOptions options{.train_size = 60, .test_size = 20, .height = 33, .width = 47};
  const Example one = everything(datasets::drawn_shapes(options).train);
  const Example two = everything(datasets::drawn_shapes(options).train);
  EXPECT_EQ(one.x.sizes(), (std::vector<int64_t>{60, 3, 33, 47}));
  EXPECT_EQ(one.x.scalar_type(), torch::kByte);
  EXPECT_EQ(one.y.sizes(), (std::vector<int64_t>{60, 33, 47}));
  EXPECT_TRUE(torch::equal(one.x, two.x));
  EXPECT_TRUE(torch::equal(one.y, two.y));
  const torch::Tensor counts = torch::bincount(one.y.flatten());
  ASSERT_EQ(counts.size(0), 4);
  EXPECT_GT(counts.min().item<int64_t>(), one.y.numel() / 40);
  EXPECT_GT(counts[0].item<int64_t>(), one.y.numel() / 3);  // the ground
}

TEST(DrawnShapes, OfOtherSeedsAndPartsAreOthers) {
  const auto images = [](uint64_t seed) {
    return datasets::drawn_shapes({.train_size = 2, .test_size = 2, .height = 16, .width = 16, .seed = seed});
  };
  const torch::Tensor one = everything(images(1).train).x;
  EXPECT_FALSE(torch::equal(one, everything(images(2).train).x));
  EXPECT_FALSE(torch::equal(one, everything(images(1).test).x));
}

// The same with every compiler and on every platform.
TEST(DrawnShapes, HaveThesePixels) {
  const Example all =
      everything(datasets::drawn_shapes({.train_size = 50, .test_size = 1, .height = 40, .width = 56}).train);
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  const auto add = [&](const auto* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) hash = (hash ^ static_cast<uint64_t>(values[i])) * 0x100000001b3ULL;
  };
  add(all.x.data_ptr<uint8_t>(), all.x.numel());
  add(all.y.data_ptr<int64_t>(), all.y.numel());
  EXPECT_EQ(hash, 11045553579878887361ULL);
}

TEST(DrawnShapes, RefuseOtherSizes) {
  testing::expect_error<InvalidArgument>([] { datasets::drawn_shapes({.height = 0}); },
                                         "pictures of 0 x 64, wanted 1 to 4096 pixels a side");
}

}  // namespace
}  // namespace cohort::drawn_shapes_test
