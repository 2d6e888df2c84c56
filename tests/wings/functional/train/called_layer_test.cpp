// Layers that are called by themselves, in loops of the user's own.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/compute.h"
#include "cohort/error.h"
#include "cohort/train.h"
#include "tests/support/errors.h"

namespace cohort::called_layer_test {
namespace {

torch::Tensor rows(int64_t count) {
  return torch::arange(count * 4, torch::kDouble).view({count, 4}).sin();
}

TEST(CalledLayer, KeepsItsParameters) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const Layer dense = Dense(3), copy = dense;
  testing::expect_error<FailedPrecondition>([&] { (void)as_model(dense); }, "not called by itself yet");
  const torch::Tensor x = rows(5), y = dense(x);
  EXPECT_TRUE(torch::equal(copy(x), y));
  const std::vector<torch::Tensor> own = as_model(dense).trainable_variables();
  EXPECT_TRUE(torch::equal(torch::linear(x, own[0], own[1]), y));
  EXPECT_TRUE(torch::equal(dense(rows(2)), y.slice(0, 0, 2)));
  const SymbolicTensor input = Input({4});
  Functional model(input, dense(input), {.dtype = torch::kDouble});
  EXPECT_TRUE(torch::equal(model(x), y)) << "a model of the layer has its parameters";
}

TEST(CalledLayer, GoesWithItsLastCopy) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  std::weak_ptr<torch::nn::Module> module;
  {
    const Layer dense = Dense(3);
    (void)dense(rows(2));
    module = as_model(dense).module().copies().front();
    EXPECT_FALSE(module.expired());
  }
  EXPECT_TRUE(module.expired());
}

TEST(CalledLayer, DropsWhereTheCallSaysSo) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const Layer dropout = Dropout(0.5);
  const torch::Tensor x = torch::ones({50, 4});
  EXPECT_TRUE(torch::equal(dropout(x), x));
  EXPECT_FALSE(torch::equal(dropout(x, {.training = true}), x));
}

TEST(CalledLayer, LearnsInALoopOfOnesOwn) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const Layer hidden = Dense(4, "tanh"), last = Dense(1);
  const Dataset data = Dataset::from_tensor_slices({.x = rows(12), .y = rows(12).slice(1, 0, 1)}).batch(5);
  std::optional<MirroredOptimizer> first_sgd, last_sgd;
  const auto forward = [&](const torch::Tensor& x) { return last(hidden(x, {.training = true})); };
  (void)strategy.run([&] { return forward(rows(2)).detach(); });  // makes the parameters
  first_sgd = strategy.optimizer(as_model(hidden), SGD({.learning_rate = 0.2}));
  last_sgd = strategy.optimizer(as_model(last), SGD({.learning_rate = 0.2}));
  const auto step = [&](Replica& replica, const Example& share) {
    const torch::Tensor loss = replica.global_mean((forward(share.x) - share.y).square().mean(1));
    std::vector<torch::Tensor> own = as_model(hidden).trainable_variables();
    const std::vector<torch::Tensor> rest = as_model(last).trainable_variables();
    own.insert(own.end(), rest.begin(), rest.end());
    std::vector<torch::Tensor> gradients = torch::autograd::grad({loss}, own);
    (*first_sgd)[replica].apply_gradients({gradients[0], gradients[1]});
    (*last_sgd)[replica].apply_gradients({gradients[2], gradients[3]});
    return loss.detach();
  };
  std::vector<double> losses;
  for (int epoch = 0; epoch < 40; ++epoch) {
    for (const GlobalBatch& batch : strategy.distribute(data)) {
      losses.push_back(strategy.reduce(ReduceOp::kSum, strategy.run(step, batch)).item<double>());
    }
  }
  EXPECT_LT(losses.back(), 0.1 * losses.front());
  const auto& copies = as_model(hidden).module().copies();
  EXPECT_TRUE(torch::equal(copies[0]->parameters()[0], copies[1]->parameters()[0]));
}

}  // namespace
}  // namespace cohort::called_layer_test
