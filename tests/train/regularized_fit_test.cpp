// These tests are about what layers add to the training of a model: the cost of regularizers, and masks that the loss
// and the metrics heed.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/strategy.h"
#include "cohort/train/model.h"

namespace cohort::regularized_fit_test {
namespace {

// A linear model with a cost of its weights, and data for it: 10 examples in batches of 4 leave a short last batch.
Sequential regularized() {
  Sequential model({Dense({.units = 2, .kernel_initializer = "ones", .kernel_regularizer = Regularizer::l2(0.1)})},
                   {.dtype = torch::kDouble});
  model.build({3});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = MeanSquaredError()});
  return model;
}

Dataset data() {
  torch::manual_seed(3);
  const torch::Tensor x = torch::randn({10, 3}, torch::kDouble);
  return Dataset::from_tensor_slices(x, torch::randn({10, 2}, torch::kDouble)).batch(4);
}

struct Trained {
  torch::Tensor weight;
  double loss = 0.0;
  double evaluated = 0.0;
};

Trained trained(const Strategy& strategy) {
  const auto scope = strategy.scope();
  Sequential model = regularized();
  const auto history = model.fit(data(), {.epochs = 2, .verbose = Verbose::kSilent});
  const Logs logs = model.evaluate(data(), {.verbose = Verbose::kSilent});
  return {.weight = model.layer("dense").weights()[0].second.detach().clone(),
          .loss = history["loss"].back(),
          .evaluated = logs["loss"]};
}

TEST(RegularizedFitTest, TheCostIsInEachStepOnce) {
  // The same by hand.
  torch::Tensor weight = torch::ones({2, 3}, torch::kDouble).requires_grad_();
  torch::Tensor bias = torch::zeros({2}, torch::kDouble).requires_grad_();
  const auto cost = [&] { return weight.square().sum() * 0.1; };
  double last = 0.0, evaluated = 0.0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    last = 0.0;
    for (const Example& batch : data()) {
      const torch::Tensor loss = (torch::linear(batch.x, weight, bias) - batch.y).square().mean() + cost();
      last += loss.item<double>() * static_cast<double>(batch.size()) / 10.0;
      const auto gradients = torch::autograd::grad({loss}, {weight, bias});
      const torch::NoGradGuard no_grad;
      weight -= gradients[0] * 0.1;
      bias -= gradients[1] * 0.1;
    }
  }
  for (const Example& batch : data()) {
    const torch::Tensor loss = (torch::linear(batch.x, weight, bias) - batch.y).square().mean() + cost();
    evaluated += loss.item<double>() * static_cast<double>(batch.size()) / 10.0;
  }
  for (const Strategy& strategy :
       {Strategy(OneDeviceStrategy("/CPU:0")), Strategy(MirroredStrategy({.devices = cpu_devices(2)})),
        Strategy(MirroredStrategy({.devices = cpu_devices(3)}))}) {
    const Trained result = trained(strategy);
    EXPECT_LT((result.weight - weight).abs().max().item<double>(), 1e-9);
    EXPECT_NEAR(result.loss, last, 1e-9);
    EXPECT_NEAR(result.evaluated, evaluated, 1e-9);
  }
}

TEST(RegularizedFitTest, FrozenLayersCostNothing) {
  Sequential model = regularized();
  model.layer("dense").set_trainable(false);
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = MeanSquaredError()});
  const double loss = model.evaluate(data(), {.verbose = Verbose::kSilent})["loss"];
  double wanted = 0.0;
  const torch::Tensor weight = torch::ones({2, 3}, torch::kDouble);
  for (const Example& batch : data()) {
    wanted += (torch::linear(batch.x, weight) - batch.y).square().mean().item<double>() *
              static_cast<double>(batch.size()) / 10.0;
  }
  EXPECT_NEAR(loss, wanted, 1e-9);
}

TEST(MaskedFitTest, StepsThatDoNotCountAreNoPartOfTheLoss) {
  const torch::Tensor words = torch::tensor({{3, 1, 0, 0}, {2, 0, 0, 0}, {1, 2, 3, 4}, {4, 4, 0, 0}});
  const torch::Tensor tags = torch::tensor({{1, 0, 1, 1}, {0, 1, 1, 1}, {1, 1, 0, 0}, {0, 1, 1, 0}});
  const auto made = [] {
    torch::manual_seed(5);
    Sequential model({Embedding({.input_dim = 5, .output_dim = 3, .mask_zero = true}), Dense(2)},
                     {.dtype = torch::kDouble});
    model.compile({.optimizer = SGD({.learning_rate = 0.5}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .weighted_metrics = {SparseCategoricalAccuracy()}});
    return model;
  };
  const Dataset dataset = Dataset::from_tensor_slices(words, tags).batch(4);
  Sequential alone = made();
  const Logs before = alone.evaluate(dataset, {.verbose = Verbose::kSilent});
  const torch::Tensor logits = alone.predict(words);
  const torch::Tensor each = -torch::log_softmax(logits, -1).gather(2, tags.unsqueeze(-1)).squeeze(-1);
  const torch::Tensor counts = words != 0;
  EXPECT_NEAR(before["loss"], each.masked_select(counts).mean().item<double>(), 1e-9);
  const torch::Tensor hits = logits.argmax(-1) == tags;
  EXPECT_NEAR(before["sparse_categorical_accuracy"],
              hits.masked_select(counts).to(torch::kDouble).mean().item<double>(), 1e-9);

  alone.fit(dataset, {.epochs = 3, .verbose = Verbose::kSilent});
  const torch::Tensor wanted = alone.predict(words);
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  Sequential together = made();
  together.fit(dataset, {.epochs = 3, .verbose = Verbose::kSilent});
  EXPECT_LT((wanted - together.predict(words)).abs().max().item<double>(), 1e-9);
}

}  // namespace
}  // namespace cohort::regularized_fit_test
