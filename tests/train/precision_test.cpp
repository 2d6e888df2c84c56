#include "cohort/update_rules.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"

namespace cohort::precision_test {
namespace {

using cohort::testing::expect_error;

MirroredOptions replicas(int count, const std::string& ops = "auto") {
  return {.devices = cpu_devices(count), .exchange = {.cross_device_ops = ops}};
}

torch::nn::Linear linear() {
  torch::manual_seed(1);
  return torch::nn::Linear(4, 3);
}

class LossScaleTest : public ::testing::TestWithParam<std::string> {};

// One replica's gradients overflow: no replica moves, and all halve the scale.
TEST_P(LossScaleTest, AnOverflowOnOneReplicaSkipsTheStepOnAll) {
  const MirroredStrategy strategy(replicas(2, GetParam()));
  const auto scope = strategy.scope();
  const auto net = strategy.mirror(linear);
  const auto optimizer = strategy.optimizer(
      net, LossScaleOptimizer(Adam({.learning_rate = 0.1}), {.initial_scale = 1024.0, .growth_steps = 3}));
  const auto step = [&](bool overflow) {
    strategy.run([&](Replica& replica) {
      torch::Tensor loss = net[replica]->forward(torch::ones({2, 4})).square().mean();
      if (overflow && replica.id() == 1) loss = loss * std::numeric_limits<float>::infinity();
      optimizer[replica].minimize(loss / 2);
    });
    std::vector<torch::Tensor> weights;
    for (const auto& copy : net.copies()) weights.push_back(copy->parameters()[0].detach().clone());
    EXPECT_TRUE(torch::equal(weights[0], weights[1]));
    return weights[0];
  };
  const torch::Tensor first = step(false);
  EXPECT_EQ(optimizer.iterations(), 1);
  EXPECT_EQ(optimizer.loss_scale(), 1024.0);
  EXPECT_TRUE(torch::equal(step(true), first));
  EXPECT_EQ(optimizer.iterations(), 1);
  EXPECT_EQ(optimizer.loss_scale(), 512.0);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(torch::equal(step(false), first));
  EXPECT_EQ(optimizer.loss_scale(), 1024.0);
  for (int i = 0; i < 12; ++i) step(true);
  EXPECT_EQ(optimizer.loss_scale(), 0.25);
}

INSTANTIATE_TEST_SUITE_P(Engines, LossScaleTest, ::testing::Values("ring", "reduction_to_one_device"));

TEST(PrecisionTest, AnOverflowOnOneWorkerSkipsTheStepOnAll) {
  cohort::testing::with_workers({.workers = 2, .replicas = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto net = strategy.mirror([] { return torch::nn::Linear(4, 3); });
    const auto optimizer =
        strategy.optimizer(net, LossScaleOptimizer(SGD({.learning_rate = 0.1}), {.initial_scale = 1024.0}));
    for (int i = 0; i < 4; ++i) {
      strategy.run([&](Replica& replica) {
        torch::Tensor loss = net[replica]->forward(torch::ones({2, 4})).square().mean();
        if (i == 2 && replica.id() == 3) loss = loss * std::numeric_limits<float>::infinity();
        optimizer[replica].minimize(loss / 4);
      });
    }
    EXPECT_EQ(optimizer.iterations(), 3);
    EXPECT_EQ(optimizer.loss_scale(), 512.0);
    for (const torch::Tensor& parameter : net.copies()[0]->parameters()) {
      EXPECT_TRUE(torch::isfinite(parameter).all().item<bool>());
    }
  });
}

// A power of two changes no bit of what is not too small.
TEST(PrecisionTest, TheScaleItselfChangesNothing) {
  const auto trained = [](const Optimizer& rule) {
    const MirroredStrategy strategy(replicas(2));
    const auto scope = strategy.scope();
    const auto net = strategy.mirror(linear);
    const auto optimizer = strategy.optimizer(net, rule);
    for (int i = 0; i < 5; ++i) {
      strategy.run([&](Replica& replica) {
        const torch::Tensor x = torch::full({2, 4}, 0.5 + replica.id());
        optimizer[replica].minimize(net[replica]->forward(x).square().mean() / 2);
      });
    }
    return net.copies()[0]->parameters()[0].detach().clone();
  };
  const auto rule = SGD({.learning_rate = 0.1, .momentum = 0.9});
  EXPECT_TRUE(torch::equal(trained(rule), trained(LossScaleOptimizer(rule))));
  const auto clipped = SGD({.learning_rate = 0.1, .gradient = {.global_clipnorm = 0.5}});
  EXPECT_TRUE(torch::allclose(trained(clipped), trained(LossScaleOptimizer(clipped)), 1e-6, 1e-7));
}

TEST(PrecisionTest, TheScaleIsPartOfTheOptimizersState) {
  const MirroredStrategy strategy(replicas(2));
  const auto scope = strategy.scope();
  const auto net = strategy.mirror(linear);
  const Optimizer rule = LossScaleOptimizer(SGD({.learning_rate = 0.1}), {.initial_scale = 64.0});
  const auto optimizer = strategy.optimizer(net, rule);
  strategy.run([&](Replica& replica) {
    const torch::Tensor loss =
        net[replica]->forward(torch::ones({1, 4})).sum() * std::numeric_limits<float>::infinity();
    optimizer[replica].minimize(loss);
  });
  EXPECT_EQ(optimizer.loss_scale(), 32.0);
  const auto state = optimizer.state();
  const auto other = strategy.optimizer(net, rule);
  EXPECT_EQ(other.loss_scale(), 64.0);
  other.load_state(state);
  EXPECT_EQ(other.loss_scale(), 32.0);
  const auto plain = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
  plain.load_state(state);
  EXPECT_EQ(plain.loss_scale(), 1.0);
  other.load_state(plain.state());
  EXPECT_EQ(other.loss_scale(), 64.0);
}

struct Fit {
  std::vector<double> losses;
  torch::Tensor weights;
};

Fit fit(PrecisionPolicy precision, int count) {
  const MirroredStrategy strategy(replicas(count));
  const auto scope = strategy.scope();
  torch::manual_seed(2);
  Sequential model{Conv2D(8, 3, Activation::kRelu), BatchNormalization(), Flatten(), Dense(16, Activation::kRelu),
                   Dense(5)};
  const torch::Tensor x = torch::randn({32, 1, 8, 8});
  const torch::Tensor y = torch::randint(0, 5, {32}, torch::kLong);
  model.compile({.optimizer = SGD({.learning_rate = 0.05, .momentum = 0.9}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .precision = precision});
  const History history =
      model.fit(x, y, {.epochs = 8, .verbose = Verbose::kSilent, .batch_size = 16, .shuffle = false});
  return {history["loss"], model.weights().front().second};
}

TEST(PrecisionTest, MixedBfloat16FollowsFloat32WithinItsTolerance) {
  for (const int count : {1, 2}) {
    const Fit exact = fit(PrecisionPolicy::kFloat32, count);
    const Fit mixed = fit(PrecisionPolicy::kMixedBFloat16, count);
    EXPECT_EQ(mixed.weights.scalar_type(), torch::kFloat);
    for (std::size_t i = 0; i < exact.losses.size(); ++i) EXPECT_NEAR(mixed.losses[i], exact.losses[i], 0.03) << i;
    EXPECT_FALSE(torch::equal(mixed.weights, exact.weights)) << "nothing was computed in bfloat16";
  }
}

TEST(PrecisionTest, MixedFloat16WantsAGpu) {
  expect_error<Unimplemented>([] { fit(PrecisionPolicy::kMixedFloat16, 1); },
                              "LibTorch does not compute mixed_float16 on the device cpu, where a replica is");
}

TEST(PrecisionTest, NamesAndNumbersAreChecked) {
  EXPECT_EQ(parse_precision("float16"), PrecisionPolicy::kMixedFloat16);
  EXPECT_EQ(parse_precision("mixed_bfloat16"), PrecisionPolicy::kMixedBFloat16);
  EXPECT_EQ(parse_precision(""), PrecisionPolicy::kFloat32);
  expect_error<InvalidArgument>([] { parse_precision("half"); }, "\"half\" is not known");
  expect_error<InvalidArgument>([] { LossScaleOptimizer(SGD(), {.initial_scale = 0.0}); }, "wanted positive numbers");
}

}  // namespace
}  // namespace cohort::precision_test
