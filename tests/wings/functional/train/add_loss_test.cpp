// Terms that modules add to the loss, held to Keras' add_loss() (add_loss_facts.py).
#include "cohort/train/add_loss.h"

#include <gtest/gtest.h>

#include "cohort/error.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "tests/support/errors.h"
#include "tests/wings/functional/train/add_loss_facts.h"

namespace cohort::add_loss_test {
namespace {

using testing::autoencoder_of_module;
using testing::expect_error;
using testing::expect_keras_numbers;
using testing::functional_autoencoder;

TEST(AddLoss, HasKerasNumbers) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  expect_keras_numbers(functional_autoencoder());
  expect_keras_numbers(autoencoder_of_module());
}

// The last batch has two examples, one of which comes to a third replica: the mean over the global batch stays exact.
TEST(AddLoss, CountsOnceUnderReplicas) {
  for (const int replicas : {2, 3}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const auto scope = strategy.scope();
    expect_keras_numbers(functional_autoencoder());
    expect_keras_numbers(autoencoder_of_module());
  }
}

TEST(AddLoss, IsPartOfLosses) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  Model model = functional_autoencoder();
  testing::prepare(model);
  EXPECT_EQ(model.losses().size(), 1U) << "only the regularizer's before a call";
  const Example all = testing::examples();
  model(all.inputs);
  std::vector<torch::Tensor> losses = model.losses();
  ASSERT_EQ(losses.size(), 2U);
  const std::vector<double> wanted = testing::add_loss_facts().at("losses");
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(losses[i].item<double>(), wanted[i], 1e-12);
  EXPECT_TRUE(losses[0].requires_grad());
  EXPECT_EQ(model.losses().size(), 2U) << "asking does not forget them";
  model(all.inputs);
  EXPECT_EQ(model.losses().size(), 2U) << "each call has its own";
  const torch::NoGradGuard no_grad;
  model(all.inputs);
  EXPECT_FALSE(model.losses()[0].requires_grad());
  EXPECT_EQ(model.predict_outputs(Example{.inputs = all.inputs}).front().second.size(0), 10);
}

// A loop with the model's losses does what fit() does.
TEST(AddLoss, CountsInLoops) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  Model fitted = functional_autoencoder(), looped = functional_autoencoder();
  const Example all = testing::examples();
  for (Model* const each : {&fitted, &looped}) testing::prepare(*each);
  fitted.train_on_batch(all);
  const MirroredOptimizer sgd = strategy.optimizer(looped, SGD({.learning_rate = 0.25}));
  strategy.run([&](Replica& replica) {
    torch::Tensor loss = (looped(all.inputs, {.training = true}).front().second - all.y).square().mean();
    for (const torch::Tensor& each : looped.losses()) loss = loss + each;
    sgd[replica].minimize(loss);
  });
  const NamedTensors wanted = fitted.weights(), own = looped.weights();
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_TRUE(torch::allclose(own[i].second, wanted[i].second, 0.0, 1e-12)) << own[i].first;
  }
}

Layer adds(const std::string& name) {
  return Lambda(
      [](const torch::Tensor& x) {
        add_loss(x.square().mean());
        return x * 1.0;
      },
      name);
}

Logs trained(const Strategy& strategy, const std::vector<Layer>& layers) {
  const auto scope = strategy.scope();
  Sequential model(layers, {.dtype = torch::kDouble});
  model.build({3});
  NamedTensors weights = model.weights();
  for (auto& [name, tensor] : weights) tensor = testing::drawn(name, tensor.sizes().vec());
  model.set_weights(weights);
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  const torch::Tensor x = testing::drawn("x", {8, 3});
  model.train_on_batch({.x = x, .y = x});
  return model.train_on_batch({.x = x, .y = x});
}

TEST(AddLoss, CountsInMicrobatches) {
  const std::vector<Layer> layers = {Dense({.units = 4, .activation = "tanh", .name = "a"}),
                                     Dense({.units = 3, .name = "b"}), adds("adds")};
  const double alone = trained(OneDeviceStrategy("/CPU:0"), layers)["loss"];
  const PipelineStrategy pipeline(
      {.devices = cpu_devices(2), .schedule = Schedule1F1B{.microbatches = 4}, .cut = {"b"}});
  EXPECT_NEAR(trained(pipeline, layers)["loss"], alone, 1e-12);
  const std::vector<Layer> early = {Dense({.units = 3, .name = "a"}), adds("adds"), Dense({.units = 3, .name = "b"})};
  expect_error<InvalidArgument>([&] { trained(pipeline, early); }, "give all that later layers need to next_stage()");
}

TEST(AddLoss, RefusesTermsThatAreLost) {
  const OneDeviceStrategy strategy("/CPU:0");
  const std::vector<Layer> remat = {Checkpointed(std::vector<Layer>{Dense(3), adds("adds")})};
  expect_error<FailedPrecondition>([&] { trained(strategy, remat); }, "within Checkpointed");
  expect_error<InvalidArgument>([] { add_loss({}); }, "the term is undefined");
  expect_error<InvalidArgument>([] { add_loss(torch::ones({2}, torch::kLong)); }, "the term is Long[2]");
  add_loss(torch::ones({}));  // nobody asks for it
}

}  // namespace
}  // namespace cohort::add_loss_test
