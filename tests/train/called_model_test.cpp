// A model that is called, in loops of the user's own.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/train.h"
#include "tests/support/errors.h"

namespace cohort::called_model_test {
namespace {

torch::Tensor rows(int64_t count) {
  return torch::arange(count * 6, torch::kDouble).view({count, 6}).sin();
}

Sequential small_model(double dropout = 0.0) {
  return Sequential({Dense({.units = 5, .activation = "relu", .kernel_regularizer = Regularizer::l2(0.1)}),
                     BatchNormalization(), Dropout({.rate = dropout}), Dense({.units = 3})},
                    {.dtype = torch::kDouble});
}

TEST(CalledModel, GivesWhatPredictGives) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  Sequential model = small_model(0.5);
  const torch::Tensor x = rows(4);
  const torch::Tensor called = model(x);  // builds it
  EXPECT_TRUE(model.built());
  EXPECT_TRUE(torch::equal(called.detach(), model.predict(x)));
  EXPECT_TRUE(called.requires_grad());
}

TEST(CalledModel, TrainsWhereTheCallSaysSo) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  Sequential model = small_model();
  model.build({6});
  const torch::Tensor x = rows(8);
  const auto mean = [&] { return model.layer("batch_normalization").weights()[2].second.clone(); };
  const torch::Tensor before = mean();
  (void)model(x, {.training = false});
  EXPECT_TRUE(torch::equal(mean(), before));
  model.module().eval();
  (void)model(x, {.training = true});
  EXPECT_FALSE(torch::equal(mean(), before));
  EXPECT_FALSE(model.module().copies().front()->is_training()) << "a call leaves the mode as it was";
}

TEST(CalledModel, IsBuiltByTheReplicasTogether) {
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  const auto scope = strategy.scope();
  Sequential model = small_model();
  const auto outputs = strategy.run([&] { return model(rows(2)).detach(); });
  EXPECT_TRUE(torch::equal(outputs[0], outputs[2]));
  EXPECT_TRUE(torch::equal(outputs[1], model(rows(2)).detach()));
}

// A loop of one's own takes the steps that fit() takes.
TEST(CalledModel, ALoopOfOnesOwnLearnsWhatFitLearns) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const torch::Tensor y = torch::arange(7) % 3;
  const Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
  Sequential fitted = small_model();
  fitted.build({6});
  Sequential looped = small_model();
  looped.build({6});
  looped.set_weights(fitted.weights());
  fitted.compile({.optimizer = Adam({.learning_rate = 0.1}), .loss = loss});
  const Dataset data = Dataset::from_tensor_slices({.x = rows(7), .y = y}).batch(4);
  fitted.fit(data, {.epochs = 2, .verbose = Verbose::kSilent});

  MirroredOptimizer adam = strategy.optimizer(looped, Adam({.learning_rate = 0.1}));
  MirroredMetric seen(strategy, Mean());
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const GlobalBatch& batch : strategy.distribute(data)) {
      strategy.run(
          [&](Replica& replica, const Example& share) {
            const torch::Tensor predictions = looped(share.x, {.training = true});
            torch::Tensor value = compute_average_loss(loss.per_example(share.y, predictions));
            for (const torch::Tensor& each : looped.losses()) value = value + scale_regularization_loss(each);
            adam[replica].apply_gradients(torch::autograd::grad({value}, looped.trainable_variables()));
            seen.update_state(predictions.detach().sum(1) * 0.0 + 1.0);
          },
          batch);
    }
  }
  EXPECT_EQ(seen.result(), 1.0);
  const NamedTensors wanted = fitted.weights(), got = looped.weights();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_LT((wanted[i].second - got[i].second).abs().max().item<double>(), 1e-9) << wanted[i].first;
  }
}

TEST(CalledModel, FrozenLayersAreNoVariables) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  Sequential model = small_model();
  model.build({6});
  EXPECT_EQ(model.trainable_variables().size(), 6U);
  model.layer("dense").set_trainable(false);
  model.layer("batch_normalization").set_trainable(false);
  EXPECT_EQ(model.trainable_variables().size(), 2U);
  const torch::Tensor mean = model.layer("batch_normalization").weights()[2].second.clone();
  (void)model(rows(8), {.training = true});
  EXPECT_TRUE(torch::equal(model.layer("batch_normalization").weights()[2].second, mean));
  MirroredOptimizer sgd = strategy.optimizer(model, SGD());
  EXPECT_EQ(sgd.parameter_names().size(), 2U);
}

class TwoHeads : public torch::nn::Module {
 public:
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& a, const torch::Tensor& b) {
    return {a + b, a - b};
  }
};

TEST(CalledModel, SeveralInputsAndOutputsHaveNames) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  Model model([] { return std::make_shared<TwoHeads>(); }, {.inputs = {"a", "b"}, .outputs = {"sum", "difference"}});
  const torch::Tensor ones = torch::ones({2, 1});
  const NamedTensors outputs = model({{"b", ones}, {"a", 3 * ones}});
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[1].first, "difference");
  EXPECT_TRUE(torch::equal(outputs[1].second, 2 * ones));
}

TEST(CalledModel, WrongCallsAreNamed) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)}), other({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  Sequential model = small_model();
  testing::expect_error<FailedPrecondition>([&] { (void)model.losses(); }, "losses: the model is not built yet");
  model.build({6});
  testing::expect_error<FailedPrecondition>([&] { other.run([&] { (void)model(rows(2)); }); },
                                            "the model was made under another strategy");
  testing::expect_error<FailedPrecondition>([&] { (void)scale_regularization_loss(torch::ones({})); },
                                            "called outside run()");
}

}  // namespace
}  // namespace cohort::called_model_test
