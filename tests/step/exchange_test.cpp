// These tests are about how gradients become parameters, by every exchange alike.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"

namespace cohort::exchange_test {
namespace {

class ExchangeTest : public ::testing::TestWithParam<const char*> {};

// A pixel that is always black: its gradient is zero, and the slots of its weights decay for ever. After 135 halvings
// a float32 is between the smallest normal number and the smallest of all.
TEST_P(ExchangeTest, SlotsDecayToZeroAndNotToDenormals) {
  const MirroredStrategy strategy({.devices = cpu_devices(2), .exchange = {.cross_device_ops = GetParam()}});
  const auto net = strategy.mirror([] { return torch::nn::Linear(40, 1); });
  const auto adam = strategy.optimizer(net, Adam({.beta_1 = 0.5}));
  for (int step = 0; step < 135; ++step) {
    strategy.run([&](Replica& replica) {
      const double gradient = step == 0 ? 1.0 : 0.0;
      adam[replica].apply_gradients({torch::full({1, 40}, gradient), torch::full({1}, gradient)});
      volatile float smallest = std::numeric_limits<float>::min();
      EXPECT_GT(smallest * 0.5F, 0.0F) << "the user's own arithmetic is left alone";
    });
  }
  bool seen = false;
  for (const auto& [name, slot] : adam.state()) {
    if (name != "weight/exp_avg") continue;
    seen = true;
    EXPECT_EQ(slot.abs().max().item<float>(), 0.0F);
  }
  EXPECT_TRUE(seen);
}

// Whatever layout a gradient has, it belongs to the elements of the parameter at the same index.
TEST_P(ExchangeTest, GradientsOfAnyLayoutAreTaken) {
  const MirroredStrategy strategy({.devices = cpu_devices(2), .exchange = {.cross_device_ops = GetParam()}});
  const auto net = strategy.mirror([] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 2).bias(false)); });
  const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 1.0}));
  const torch::Tensor values = torch::arange(4 * 3 * 2 * 2, torch::kFloat).view({4, 3, 2, 2});
  const torch::Tensor before = net.state().front().second.clone();
  strategy.run([&](Replica& replica) { sgd[replica].apply_gradients({values}); });
  strategy.run(
      [&](Replica& replica) { sgd[replica].apply_gradients({values.contiguous(at::MemoryFormat::ChannelsLast)}); });
  strategy.run([&](Replica& replica) { sgd[replica].apply_gradients({values.to_sparse()}); });
  strategy.run([&](Replica& replica) { sgd[replica].apply_gradients({values.to(torch::kDouble)}); });
  EXPECT_TRUE(torch::allclose(net.state().front().second, before - 8 * values));
}

// Three calls are one with the mean of their gradients; what is in between can be taken elsewhere.
TEST_P(ExchangeTest, GradientsAreAveragedOverAccumulateSteps) {
  const MirroredStrategy strategy({.devices = cpu_devices(2), .exchange = {.cross_device_ops = GetParam()}});
  const auto make = [&](int64_t every) {
    const auto net = strategy.mirror([] { return torch::nn::Linear(3, 2); });
    net.load_state({{"weight", torch::full({2, 3}, 0.5)}, {"bias", torch::full({2}, 0.5)}});
    return std::pair(net, strategy.optimizer(net, Adam({.gradient = {.gradient_accumulation_steps = every}})));
  };
  const auto gradient = [](int step, int replica) { return torch::arange(6.0F).view({2, 3}) * (step + 1) + replica; };
  const auto [net, adam] = make(3);
  const auto [other_net, other] = make(3);
  const auto [mean_net, mean] = make(1);
  for (int step = 0; step < 5; ++step) {
    strategy.run([&, &adam = adam](Replica& replica) {
      adam[replica].apply_gradients({gradient(step, replica.local_id()), torch::Tensor()});
    });
    EXPECT_EQ(adam.iterations(), step < 2 ? 0 : 1);
  }
  strategy.run([&, &mean = mean](Replica& replica) {
    const int r = replica.local_id();
    mean[replica].apply_gradients({(gradient(0, r) + gradient(1, r) + gradient(2, r)) / 3, torch::Tensor()});
  });
  EXPECT_TRUE(torch::allclose(net[0]->weight, mean_net[0]->weight));
  EXPECT_FALSE(torch::equal(net[0]->weight, torch::full({2, 3}, 0.5)));

  other_net.load_state(net.state());
  other.load_state(adam.state());
  EXPECT_EQ(other.accumulated()[0].item<int64_t>(), 0);
  other.load_accumulated(adam.accumulated());
  EXPECT_EQ(other.accumulated()[0].item<int64_t>(), 2);
  for (const auto& one : {adam, other}) {
    strategy.run([&](Replica& replica) {
      one[replica].apply_gradients({gradient(5, replica.local_id()), torch::ones({2})});
    });
    EXPECT_EQ(one.iterations(), 2);
  }
  EXPECT_TRUE(torch::equal(net[0]->weight, other_net[0]->weight));
  EXPECT_TRUE(torch::equal(net[1]->bias, other_net[0]->bias));
  EXPECT_TRUE(mean.accumulated().empty());
  EXPECT_THROW(other.load_accumulated({torch::ones({1})}), InvalidArgument);
  std::vector<torch::Tensor> wrong = other.accumulated();
  wrong[1] = torch::ones({3, 2});
  EXPECT_THROW(other.load_accumulated(wrong), InvalidArgument);
}

TEST_P(ExchangeTest, ParametersKeepTheirLayout) {
  const MirroredStrategy strategy({.devices = cpu_devices(2), .exchange = {.cross_device_ops = GetParam()}});
  const auto net = strategy.mirror([] {
    torch::nn::Conv2d made(torch::nn::Conv2dOptions(3, 4, 2).bias(false));
    made->weight.set_data(made->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    return made;
  });
  const torch::Tensor before = net.state().front().second.clone();
  const auto adam = strategy.optimizer(net, Adam());
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(net[r]->weight.strides(), (std::vector<int64_t>{12, 1, 6, 3}));
    EXPECT_TRUE(torch::equal(net[r]->weight, before));
  }
  strategy.run([&](Replica& replica) {
    adam[replica].minimize(net[replica]->forward(torch::ones({1, 3, 4, 4})).sum());
  });
  for (const auto& [name, slot] : adam.state()) {
    EXPECT_TRUE(name == "iterations" || slot.sizes() == before.sizes()) << name;
  }
  EXPECT_TRUE(torch::equal(net[0]->weight, net[1]->weight));
  EXPECT_FALSE(torch::equal(net[0]->weight, before));
}

INSTANTIATE_TEST_SUITE_P(All, ExchangeTest, ::testing::Values("ring", "reduction_to_one_device"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cohort::exchange_test
