// These tests are about what surrounds every rule: averages of the parameters, clipping of each gradient, accumulation,
// a fixed loss scale, and what a state of another formulation is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"

namespace cohort::optimizer_options_test {
namespace {

using testing::expect_error;

struct Training {
  Strategy strategy;
  Mirrored<torch::nn::Linear> net;
  MirroredOptimizer optimizer;

  Training(Strategy by, const Optimizer& rule)
      : strategy(std::move(by)),
        net(strategy.mirror([] {
          torch::nn::Linear made(3, 2);
          const torch::NoGradGuard no_grad;
          for (auto& each : made->parameters()) each.fill_(0.5);
          return made;
        })),
        optimizer(strategy.optimizer(net, rule)) {}

  // One call of minimize() whose gradient is `scale` times that of the sum of the outputs for ones.
  void step(double scale) {
    strategy.run([&](Replica& replica) {
      const torch::Tensor output = net[replica]->forward(torch::ones({1, 3}));
      optimizer[replica].minimize(output.sum() * (scale / strategy.num_local_replicas()));
    });
  }
  double weight(std::size_t copy = 0) const { return net.copies()[copy]->parameters()[0][0][0].item<double>(); }
  double bias() const { return net.copies()[0]->parameters()[1][0].item<double>(); }
};

std::vector<Strategy> strategies() {
  return {OneDeviceStrategy("/CPU:0"), MirroredStrategy({.devices = cpu_devices(2)}),
          MirroredStrategy({.devices = cpu_devices(2), .exchange = {.cross_device_ops = "reduction_to_one_device"}}),
          CentralStorageStrategy({.compute_devices = cpu_devices(2)})};
}

TEST(Averages, ReplaceTheParametersOfAllCopiesAtTheEnd) {
  for (const Strategy& strategy : strategies()) {
    Training run(strategy, SGD({.learning_rate = 1.0, .ema = {.use_ema = true, .ema_momentum = 0.75}}));
    run.optimizer.finalize_variable_values();
    EXPECT_EQ(run.weight(), 0.5) << "before the first step there is no average";
    run.step(1.0);
    run.step(4.0);
    EXPECT_FLOAT_EQ(run.weight(), -4.5);
    run.optimizer.finalize_variable_values();
    for (std::size_t copy = 0; copy < run.net.copies().size(); ++copy) {
      EXPECT_FLOAT_EQ(run.weight(copy), 0.75 * -0.5 + 0.25 * -4.5) << strategy.name();
    }
    run.step(1.0);
    EXPECT_FLOAT_EQ(run.weight(), 0.75 * -0.5 + 0.25 * -4.5 - 1.0) << "training goes on from there";
  }
}

TEST(Averages, ArePartOfTheState) {
  const Optimizer rule = Adam({.learning_rate = 0.1, .ema = {.use_ema = true}});
  Training whole(OneDeviceStrategy("/CPU:0"), rule);
  for (int i = 0; i < 3; ++i) whole.step(1.0);
  Training resumed(MirroredStrategy({.devices = cpu_devices(2)}), rule);
  for (std::size_t copy = 0; copy < 2; ++copy) {
    const torch::NoGradGuard no_grad;
    for (std::size_t p = 0; p < 2; ++p) {
      resumed.net.copies()[copy]->parameters()[p].copy_(whole.net.copies()[0]->parameters()[p]);
    }
  }
  resumed.optimizer.load_state(whole.optimizer.state());
  for (Training* each : {&whole, &resumed}) {
    each->step(2.0);
    each->optimizer.finalize_variable_values();
  }
  EXPECT_FLOAT_EQ(whole.weight(), resumed.weight());
}

TEST(Clipnorm, IsOfEachParameter) {
  for (const Strategy& strategy : strategies()) {
    Training run(strategy, SGD({.learning_rate = 1.0, .gradient = {.clipnorm = 1.0}}));
    run.step(2.0);  // the weight's gradient has a norm of 2 * sqrt(6), the bias' of 2 * sqrt(2)
    EXPECT_NEAR(run.weight(), 0.5 - 1.0 / std::sqrt(6.0), 1e-6) << strategy.name();
    EXPECT_NEAR(run.bias(), 0.5 - 1.0 / std::sqrt(2.0), 1e-6) << strategy.name();
  }
}

TEST(Accumulation, SchedulesCountTheCalls) {
  const Schedule rate = PiecewiseConstantDecay({.boundaries = {3}, .values = {1.0, 0.25}});
  Training run(OneDeviceStrategy("/CPU:0"),
               SGD({.learning_rate = rate, .gradient = {.gradient_accumulation_steps = 2}}));
  const std::vector<double> wanted = {0.5, -0.5, -0.5, -1.5, -1.5, -1.75};
  for (std::size_t call = 0; call < wanted.size(); ++call) {
    EXPECT_EQ(run.optimizer.learning_rate(), call > 3 ? 0.25 : 1.0);
    run.step(1.0);
    EXPECT_FLOAT_EQ(run.weight(), wanted[call]) << "after call " << call;
  }
  EXPECT_EQ(run.optimizer.iterations(), 3);
}

TEST(LossScaleFactor, LeavesTheUpdateAsItIs) {
  Training run(OneDeviceStrategy("/CPU:0"), SGD({.learning_rate = 1.0, .gradient = {.loss_scale_factor = 8.0}}));
  run.step(1.0);
  EXPECT_FLOAT_EQ(run.weight(), -0.5);
  run.strategy.run([&](Replica& replica) {
    auto gradients = run.optimizer[replica].gradients(run.net[replica]->forward(torch::ones({1, 3})).sum());
    EXPECT_FLOAT_EQ(gradients[0][0][0].item<float>(), 8.0F) << "as Keras, of the multiplied loss";
    run.optimizer[replica].apply_gradients(std::move(gradients));
  });
  EXPECT_FLOAT_EQ(run.weight(), -1.5);
}

TEST(State, OfAnotherFormulationIsRefusedWithAReason) {
  Training torchs(OneDeviceStrategy("/CPU:0"), SGD({.momentum = 0.9, .formulation = Formulation::kTorch}));
  Training keras(OneDeviceStrategy("/CPU:0"), SGD({.momentum = 0.9}));
  torchs.step(1.0);
  keras.step(1.0);
  expect_error<NotFound>([&] { keras.optimizer.load_state(torchs.optimizer.state()); }, "formulation = kTorch goes on");
  expect_error<NotFound>([&] { torchs.optimizer.load_state(keras.optimizer.state()); }, "formulation = kKeras goes on");
  Training adam(OneDeviceStrategy("/CPU:0"), Adam());
  Training adam_torch(OneDeviceStrategy("/CPU:0"), Adam({.formulation = Formulation::kTorch}));
  adam_torch.step(1.0);
  adam.optimizer.load_state(adam_torch.optimizer.state());  // the same moments
  EXPECT_EQ(adam.optimizer.iterations(), 1);
}

}  // namespace
}  // namespace cohort::optimizer_options_test
