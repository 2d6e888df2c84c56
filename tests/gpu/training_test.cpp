// Strategies on cards beside one device on the CPU: steps of one's own, and fit().
#include <torch/torch.h>

#include <map>
#include <string>

#include "cohort/cohort.h"
#include "tests/equivalence/runs.h"
#include "tests/gpu/cards.h"

namespace cohort::training_test {
namespace {

using namespace gpu;

struct Placing {
  const char* name;
  int needs;  // cards
  std::function<Strategy()> make;
};

Strategy mirrored(const std::vector<std::string>& devices, const std::string& ops = "auto", int64_t bucket = 0) {
  return MirroredStrategy({.devices = devices, .exchange = {.cross_device_ops = ops, .bytes_per_pack = bucket}});
}

std::vector<Placing> placings() {
  return {
      {"one_device", 1, [] { return OneDeviceStrategy(on_cards(1)[0]); }},
      {"one_card", 1, [] { return mirrored(on_cards(1)); }},
      {"two_replicas_of_one_card", 1, [] { return mirrored(parts_of_one_card()); }},
      {"two_replicas_to_one_device", 1, [] { return mirrored(parts_of_one_card(), "reduction_to_one_device"); }},
      {"two_replicas_hierarchical", 1, [] { return mirrored(parts_of_one_card(), "hierarchical_copy"); }},
      {"central_storage", 1, [] { return CentralStorageStrategy({.compute_devices = parts_of_one_card()}); }},
      {"all_cards", 2, [] { return mirrored(on_cards(places()), "auto", /*bucket=*/256); }},
      {"all_cards_ring", 2, [] { return mirrored(on_cards(places()), "ring"); }},
      {"all_cards_to_one_device", 2, [] { return mirrored(on_cards(places()), "reduction_to_one_device"); }},
  };
}

class OnCards : public ::testing::TestWithParam<Placing> {};

torch::Tensor weights_after(const Strategy& strategy, const Optimizer& rule, torch::ScalarType dtype) {
  const auto make = [] {
    return torch::nn::Sequential(torch::nn::Linear(equivalence::kFeatures, 31), torch::nn::Tanh(),
                                 torch::nn::Linear(31, equivalence::kClasses));
  };
  return equivalence::weights_after(strategy, rule, {.dtype = dtype}, make);
}

// Of the CPU alone, which is asked once for each rule.
const torch::Tensor& alone_after(const equivalence::Rule& rule) {
  static std::map<std::string, torch::Tensor> known;
  torch::Tensor& weights = known[rule.name];
  if (!weights.defined()) weights = weights_after(OneDeviceStrategy("/CPU:0"), rule.make(), torch::kDouble);
  return weights;
}

TEST_P(OnCards, EveryOptimizerComesToTheCpusNumbers) {
  COHORT_NEEDS_PLACES(GetParam().needs);
  for (const equivalence::Rule& rule : equivalence::rules()) {
    const torch::Tensor& alone = alone_after(rule);
    const torch::Tensor together = weights_after(GetParam().make(), rule.make(), torch::kDouble);
    EXPECT_LT(equivalence::distance(alone, together), 1e-8) << rule.name;
  }
}

TEST_P(OnCards, Float32IsNear) {
  COHORT_NEEDS_PLACES(GetParam().needs);
  const auto rule = SGD({.learning_rate = 0.05, .momentum = 0.9});
  const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule, torch::kFloat);
  EXPECT_LT(equivalence::distance(alone, weights_after(GetParam().make(), rule, torch::kFloat)), 1e-4);
}

TEST_P(OnCards, TwoRunsAreBitIdentical) {
  COHORT_NEEDS_PLACES(GetParam().needs);
  const auto rule = Adam({.learning_rate = 0.01});
  EXPECT_TRUE(torch::equal(weights_after(GetParam().make(), rule, torch::kFloat),
                           weights_after(GetParam().make(), rule, torch::kFloat)));
}

struct Fitted {
  History history;
  Logs evaluated;
  torch::Tensor predicted;
};

// A convolution, batch norm of each replica's own share, weights of examples, a short last batch, validation.
Fitted fitted(const Strategy& strategy, bool batch_norm) {
  torch::manual_seed(3);
  strategy.set_seed(3);
  const auto scope = strategy.scope();
  std::vector<Layer> layers{Conv2D(4, 3, Activation::kRelu)};
  if (batch_norm) layers.push_back(BatchNormalization());
  for (const Layer& layer : {Flatten(), Dense(3)}) layers.push_back(layer);
  Sequential model(layers, {.dtype = torch::kDouble});
  model.build({1, 6, 6});
  NamedTensors weights = model.weights();  // those that are drawn differ from run to run
  for (auto& [name, tensor] : weights) {
    if (!tensor.is_floating_point() || name.find("batch_norm") != std::string::npos) continue;
    tensor = torch::cos(torch::arange(tensor.numel(), torch::kDouble)).view(tensor.sizes()) / 3;
  }
  model.set_weights(weights);
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .weighted_metrics = {"accuracy"}});
  const torch::Tensor y = torch::randint(3, {53}, torch::kLong);
  const Dataset data =
      Dataset::from_tensor_slices({.x = torch::randn({53, 1, 6, 6}, torch::kDouble) + y.view({-1, 1, 1, 1}),
                                   .y = y,
                                   .weight = torch::rand({53}, torch::kDouble)});
  Fitted result;
  result.history = model.fit(data.shuffle(20, {.seed = 4}).batch(10),
                             {.epochs = 3, .validation_data = data.take(17).batch(4), .verbose = Verbose::kSilent});
  result.evaluated = model.evaluate(data.batch(7), {.verbose = Verbose::kSilent});
  result.predicted = model.predict(data.batch(8)).cpu();
  return result;
}

TEST_P(OnCards, FitComesToTheCpusNumbers) {
  COHORT_NEEDS_PLACES(GetParam().needs);
  const Strategy strategy = GetParam().make();
  const bool batch_norm = strategy.num_replicas_in_sync() == 1;  // otherwise of other shares than on one device
  const Fitted alone = fitted(OneDeviceStrategy("/CPU:0"), batch_norm);
  Fitted here = fitted(strategy, batch_norm);
  ASSERT_EQ(here.history.names(), alone.history.names());
  for (const std::string& name : alone.history.names()) {
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(here.history[name][i], alone.history[name][i], 1e-6) << name;
  }
  for (const auto& [name, value] : alone.evaluated) EXPECT_NEAR(here.evaluated[name], value, 1e-6) << name;
  EXPECT_LT((here.predicted - alone.predicted).abs().max().item<double>(), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, OnCards, ::testing::ValuesIn(placings()),
                         [](const auto& info) { return info.param.name; });

TEST(Cards, AreListedAsLibTorchSeesThem) {
  COHORT_NEEDS_REAL_CARDS(1);
  EXPECT_EQ(list_physical_devices("GPU").size(), static_cast<std::size_t>(torch::cuda::device_count()));
  const LogicalDevice second = find_logical_device(parts_of_one_card()[1]);
  EXPECT_EQ(second.torch_device, torch::Device(torch::kCUDA, 0));
  const Strategy strategy = OneDeviceStrategy(on_cards(1)[0]);
  const torch::Device where =
      strategy.run([](Replica& replica) { return torch::ones({1}).to(replica.device()); })[0].device();
  EXPECT_EQ(where, torch::Device(torch::kCUDA, 0));
}

}  // namespace
}  // namespace cohort::training_test
