// A model that is called in a loop of the user's own learns under every strategy what it learns on one device.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "tests/support/errors.h"

namespace cohort::called_model_test {
namespace {

Sequential small_model(const DenseOptions& first) {
  return Sequential({Dense(first), Dense({.units = 3})}, {.dtype = torch::kDouble});
}

DenseOptions plain() {
  return {.units = 8, .activation = "relu"};
}
DenseOptions regularized() {
  return {.units = 8, .activation = "relu", .kernel_regularizer = Regularizer::l2(0.1)};
}

NamedTensors learned(const Strategy& strategy, const DenseOptions& first) {
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  Sequential model = small_model(first);
  model.build({6});
  MirroredOptimizer adam = strategy.optimizer(model, Adam({.learning_rate = 0.1}));
  const Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
  const torch::Tensor x = torch::arange(14 * 6, torch::kDouble).view({14, 6}).sin();
  const Dataset data = Dataset::from_tensor_slices({.x = x, .y = torch::arange(14) % 3}).batch(8);
  const auto step = [&](Replica& replica, const Example& share) {
    const torch::Tensor predictions = model(share.x, {.training = true});
    torch::Tensor value = replica.global_mean(loss.per_example(share.y, predictions));
    for (const torch::Tensor& each : model.losses()) value = value + scale_regularization_loss(each);
    adam[replica].minimize(value);
  };
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const GlobalBatch& batch : strategy.distribute(data)) strategy.run(step, batch);
  }
  return model.weights();
}

void expect_like_one_device(const Strategy& strategy, const DenseOptions& first = regularized()) {
  const NamedTensors wanted = learned(OneDeviceStrategy("/CPU:0"), first), got = learned(strategy, first);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_LT((wanted[i].second - got[i].second).abs().max().item<double>(), 1e-9) << wanted[i].first;
  }
}

TEST(CalledModelEquivalence, CopiesOnEveryReplica) {
  expect_like_one_device(MirroredStrategy({.devices = cpu_devices(3)}));
  expect_like_one_device(CentralStorageStrategy({.compute_devices = cpu_devices(2)}));
  expect_like_one_device(MultiWorkerMirroredStrategy());
}

TEST(CalledModelEquivalence, SharedParameters) {
  expect_like_one_device(MirroredStrategy({.devices = cpu_devices(2), .sharding = {.stage = 3}}));
}

TEST(CalledModelEquivalence, CutParameters) {
  const LayoutMap layout{
      {"dense\\.weight", {"model", ""}}, {"dense\\.bias", {"model"}}, {"dense_1\\.weight", {"", "model"}}};
  expect_like_one_device(MeshStrategy(DeviceMesh({2, 2}, {"batch", "model"}, cpu_devices(4)), {.layout = layout}),
                         plain());
}

TEST(CalledModelEquivalence, Stages) {
  expect_like_one_device(
      PipelineStrategy({.devices = cpu_devices(2), .schedule = Schedule1F1B{.microbatches = 2}, .cut = {"dense_1"}}),
      plain());
}

TEST(CalledModelEquivalence, OutsideOfRunAWholeCopyIsNeeded) {
  const MirroredStrategy strategy({.devices = cpu_devices(2), .sharding = {.stage = 3}});
  const auto scope = strategy.scope();
  Sequential model = small_model(plain());
  model.build({6});
  const MirroredOptimizer adam = strategy.optimizer(model, Adam());
  testing::expect_error<FailedPrecondition>(
      [&] {
        (void)model(torch::ones({1, 6}, torch::kDouble));
      },
      "no replica has the whole model");
}

}  // namespace
}  // namespace cohort::called_model_test
