// A functional model, with a shared layer and branches, learns under every strategy what it learns on one device.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "tests/support/errors.h"

namespace cohort::functional_model_test {
namespace {

struct Numbers {
  NamedTensors weights;
  Logs logs;
};

Functional branched() {
  const SymbolicTensor a = Input({6}, {.name = "a"}), b = Input({6}, {.name = "b"});
  const Layer tower = Dense({.units = 8, .activation = "relu", .name = "tower"});
  const SymbolicTensor near = tower(a);
  const SymbolicTensor deep =
      Dense({.units = 8, .name = "narrow"})(Dense({.units = 4, .activation = "tanh", .name = "wide"})(near));
  const SymbolicTensor joined = Concatenate({.name = "joined"})({near + deep, tower(b)});
  return Functional({a, b}, {{"class", Dense({.units = 3, .name = "head"})(joined)}, {"value", Dense(1)(deep)}},
                    {.dtype = torch::kDouble});
}

Numbers learned(const Strategy& strategy) {
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  Functional model = branched();
  model.compile({.optimizer = Adam({.learning_rate = 0.1}),
                 .losses = {{"class", SparseCategoricalCrossentropy({.from_logits = true})}, {"value", "mse"}},
                 .loss_weights = {{"value", 0.5}},
                 .output_metrics = {{"class", {"accuracy"}}}});
  const torch::Tensor x = torch::arange(14 * 6, torch::kDouble).view({14, 6}).sin();
  const Dataset data =
      Dataset::from_tensor_slices({.inputs = {{"a", x}, {"b", x.flip(0)}},
                                   .targets = {{"class", torch::arange(14) % 3}, {"value", x.slice(1, 0, 1)}}})
          .batch(8);
  (void)model.fit(data, {.epochs = 3, .verbose = Verbose::kSilent});
  return {.weights = model.weights(), .logs = model.evaluate(data, {.verbose = Verbose::kSilent})};
}

void expect_like_one_device(const Strategy& strategy) {
  const Numbers wanted = learned(OneDeviceStrategy("/CPU:0")), got = learned(strategy);
  ASSERT_EQ(got.weights.size(), wanted.weights.size());
  for (std::size_t i = 0; i < wanted.weights.size(); ++i) {
    EXPECT_LT((wanted.weights[i].second - got.weights[i].second).abs().max().item<double>(), 1e-9)
        << wanted.weights[i].first;
  }
  for (const auto& [name, value] : wanted.logs) EXPECT_NEAR(got.logs[name], value, 1e-9) << name;
}

TEST(FunctionalEquivalence, CopiesOnEveryReplica) {
  expect_like_one_device(MirroredStrategy({.devices = cpu_devices(3)}));
  expect_like_one_device(CentralStorageStrategy({.compute_devices = cpu_devices(2)}));
  expect_like_one_device(MultiWorkerMirroredStrategy());
}

TEST(FunctionalEquivalence, SharedParameters) {
  expect_like_one_device(MirroredStrategy({.devices = cpu_devices(2), .sharding = {.stage = 3}}));
}

TEST(FunctionalEquivalence, CutParameters) {
  const LayoutMap layout{{"wide\\.weight", {"model", ""}},
                         {"wide\\.bias", {"model"}},
                         {"narrow\\.weight", {"", "model"}},
                         {"tower\\.weight", {"model", ""}},
                         {"tower\\.bias", {"model"}}};
  expect_like_one_device(MeshStrategy(DeviceMesh({2, 2}, {"batch", "model"}, cpu_devices(4)), {.layout = layout}));
}

TEST(FunctionalEquivalence, Stages) {
  const auto pipeline = [](std::vector<std::string> cut) {
    return PipelineStrategy(
        {.devices = cpu_devices(2), .schedule = Schedule1F1B{.microbatches = 2}, .cut = std::move(cut)});
  };
  expect_like_one_device(pipeline({"narrow"}));
  expect_like_one_device(pipeline({}));
}

TEST(FunctionalEquivalence, LayersOfAnotherModelNeedWholeCopies) {
  const MirroredStrategy strategy({.devices = cpu_devices(2), .sharding = {.stage = 3}});
  const auto scope = strategy.scope();
  Functional model = branched();
  testing::expect_error<FailedPrecondition>([&] { Functional(model.inputs(), model.output_of("tower")); },
                                            "is in another model already");
}

}  // namespace
}  // namespace cohort::functional_model_test
