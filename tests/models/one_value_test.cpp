// Batch norms of the zoo that see one value per channel: one example whose image has become one pixel.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>

#include "cohort/models/zoo.h"
#include "cohort/strategy.h"
#include "cohort/train.h"
#include "wings/vision/models/blocks.h"

namespace cohort::models::one_value_test {
namespace {

struct Moved {
  torch::Tensor mean, var;
};

// Returns what a step of `replicas` replicas with the values makes of the running statistics.
Moved moved(int replicas, const torch::Tensor& values, bool synchronized) {
  const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
  const auto scope = strategy.scope();
  const auto module = strategy.mirror([&] {
    torch::manual_seed(3);
    return std::make_shared<ConvNorm>(ConvShape{.in = 2, .out = 3}, NormShape{.synchronized = synchronized});
  });
  strategy.run([&](Replica& replica) {
    const torch::Tensor x = values.slice(0, std::min<int64_t>(replica.id(), values.size(0)), values.size(0), replicas);
    module[replica]->forward(x).sum().backward();
  });
  const auto buffers = module.copies().front()->named_buffers();
  return {buffers["1.running_mean"], buffers["1.running_var"]};
}

torch::Tensor outputs_of(const torch::Tensor& values) {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  return conv({.in = 2, .out = 3})->forward(values).flatten(1);
}

TEST(OneValue, MovesTheRunningVarianceTowardsZero) {
  torch::manual_seed(1);
  const torch::Tensor value = torch::randn({1, 2, 1, 1});
  const Moved one = moved(1, value, /*synchronized=*/false);
  EXPECT_TRUE(one.mean.allclose(outputs_of(value)[0] * 0.1));
  EXPECT_TRUE(one.var.allclose(torch::full({3}, 0.9)));
}

// The first replica has no value, or both have one: the statistics are those of all values.
TEST(OneValue, CountsTheValuesOfAllReplicasWhereItIsSynchronized) {
  torch::manual_seed(1);
  const torch::Tensor values = torch::randn({2, 2, 1, 1});
  const Moved both = moved(2, values, /*synchronized=*/true);
  const torch::Tensor outputs = outputs_of(values);
  EXPECT_TRUE(both.mean.allclose(outputs.mean(0) * 0.1, 1e-4, 1e-6));
  EXPECT_TRUE(both.var.allclose(0.9 + 0.1 * outputs.var(0), 1e-4, 1e-6));

  const Moved one = moved(2, values.slice(0, 0, 1), /*synchronized=*/true);
  EXPECT_TRUE(one.mean.allclose(outputs[0] * 0.1, 1e-4, 1e-6));
  EXPECT_TRUE(one.var.allclose(torch::full({3}, 0.9)));
}

// What evaluations compute with is finite for every model that shrinks an image to one pixel.
TEST(OneValue, LeavesFiniteStatisticsInEveryModel) {
  const std::vector<std::pair<std::string, std::function<std::shared_ptr<LayerModule>()>>> makes = {
      {"resnet18", [] { return resnet18({.num_classes = 2}); }},
      {"resnet50", [] { return resnet50({.num_classes = 2}); }},
      {"efficientnet_b0", [] { return efficientnet(0, {.num_classes = 2}); }},
      {"unet", [] { return unet({.num_classes = 2, .filters = 4, .levels = 4}); }}};
  for (const auto& [name, make] : makes) {
    torch::manual_seed(1);
    const auto module = make();
    const torch::Tensor x = torch::randn({1, 3, name == "unet" ? 16 : 32, name == "unet" ? 16 : 32});
    module->forward(x).sum().backward();
    int counted = 0;
    for (const auto& item : module->named_buffers()) {
      EXPECT_TRUE(item.value().isfinite().all().item<bool>()) << name << " " << item.key();
      counted += item.key().ends_with("running_var") ? 1 : 0;
    }
    EXPECT_GT(counted, 8) << name;
    for (const auto& item : module->named_parameters()) {
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << name << " " << item.key();
    }
    module->eval();
    EXPECT_TRUE(module->forward(x).isfinite().all().item<bool>()) << name;
  }
}

}  // namespace
}  // namespace cohort::models::one_value_test
