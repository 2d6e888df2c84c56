// fit(), evaluate() and predict() under every strategy.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <sstream>

#include "cohort/error.h"
#include "cohort/train/layers/foreign.h"
#include "cohort/train/model.h"

namespace cohort::fit_test {
namespace {

constexpr int64_t kExamples = 53;  // no batch size divides it

Example clusters(int64_t count = kExamples) {
  torch::manual_seed(9);
  const torch::Tensor y = torch::randint(3, {count}, torch::kLong);
  return {.x = torch::randn({count, 4}, torch::kDouble) + torch::one_hot(y, 4) * 4,
          .y = y,
          .weight = torch::rand({count}, torch::kDouble)};
}

struct Outcome {
  History history;
  Logs evaluated;
  torch::Tensor predicted;
  NamedTensors weights;
};

// Everything there is: synchronised batch norm, weights of examples, short last batches, validation.
Outcome everything(const Strategy& strategy) {
  torch::manual_seed(3);
  const auto scope = strategy.scope();
  Sequential model({Dense(8, Activation::kRelu), BatchNormalization({.synchronized = true}), Dense(3)},
                   {.dtype = torch::kDouble});
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy", SparseTopKCategoricalAccuracy({.k = 2})},
                 .weighted_metrics = {"accuracy"}});
  const Dataset data = Dataset::from_tensor_slices(clusters());
  Outcome outcome;
  outcome.history = model.fit(data.shuffle(20, {.seed = 4}).batch(10),
                              {.epochs = 4, .validation_data = data.take(17).batch(4), .verbose = Verbose::kSilent});
  outcome.evaluated = model.evaluate(data.batch(7), {.verbose = Verbose::kSilent});
  outcome.predicted = model.predict(data.batch(8));
  outcome.weights = model.weights();
  return outcome;
}

struct Case {
  const char* name;
  std::function<Strategy()> make;
};

class FitTest : public ::testing::TestWithParam<Case> {};

TEST_P(FitTest, EqualsOneDevice) {
  static const Outcome alone = everything(OneDeviceStrategy("/CPU:0"));
  const Outcome outcome = everything(GetParam().make());
  ASSERT_EQ(outcome.history.names(), alone.history.names());
  EXPECT_EQ(outcome.history.names(),
            (std::vector<std::string>{"loss", "accuracy", "sparse_top_k_categorical_accuracy", "weighted_accuracy",
                                      "val_loss", "val_accuracy", "val_sparse_top_k_categorical_accuracy",
                                      "val_weighted_accuracy"}));
  for (const std::string& name : alone.history.names()) {
    ASSERT_EQ(outcome.history[name].size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(outcome.history[name][i], alone.history[name][i], 1e-9) << name;
  }
  for (const auto& [name, value] : alone.evaluated) EXPECT_NEAR(outcome.evaluated[name], value, 1e-9) << name;
  ASSERT_EQ(outcome.predicted.sizes(), (torch::IntArrayRef{kExamples, 3}));
  EXPECT_LT((outcome.predicted - alone.predicted).abs().max().item<double>(), 1e-9);
  for (std::size_t i = 0; i < alone.weights.size(); ++i) {
    EXPECT_EQ(outcome.weights[i].first, alone.weights[i].first);
    EXPECT_LT((outcome.weights[i].second - alone.weights[i].second).abs().max().item<double>(), 1e-9)
        << alone.weights[i].first;
  }
  EXPECT_LT(outcome.history["loss"].back(), 0.5 * outcome.history["loss"].front());
  EXPECT_GT(outcome.evaluated["accuracy"], 0.9);
}

INSTANTIATE_TEST_SUITE_P(
    All, FitTest,
    ::testing::Values(Case{"off", [] { return DefaultStrategy(); }},
                      Case{"mirrored_1", [] { return MirroredStrategy({.devices = cpu_devices(1)}); }},
                      Case{"mirrored_2", [] { return MirroredStrategy({.devices = cpu_devices(2)}); }},
                      Case{"mirrored_3", [] { return MirroredStrategy({.devices = cpu_devices(3)}); }},
                      Case{"central_storage",
                           [] { return CentralStorageStrategy({.compute_devices = cpu_devices(2)}); }}),
    [](const auto& info) { return info.param.name; });

// One layer, one example a step: the numbers by hand.
TEST(FitTest, LossIsTheMeanOverExamples) {
  Sequential model{Dense({.units = 1, .use_bias = false, .kernel_initializer = Initializer::kOnes})};
  model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = MeanSquaredError(), .metrics = {"mae"}});
  const torch::Tensor x = torch::tensor({{1.0f}, {2.0f}, {3.0f}}), y = torch::zeros({3, 1});
  const History history = model.fit(Dataset::from_tensor_slices(x, y).batch(2), {.verbose = Verbose::kSilent});
  EXPECT_NEAR(history["loss"][0], 14.0 / 3, 1e-6);  // not the mean of the batches' means
  EXPECT_NEAR(history["mae"][0], 2.0, 1e-6);
  EXPECT_EQ(history.epochs(), (std::vector<int64_t>{0}));
  EXPECT_THROW(history["accuracy"], NotFound);
}

TEST(FitTest, TensorsDirectly) {
  const Example all = clusters();
  Sequential model({Dense(3)}, {.dtype = torch::kDouble});
  model.compile({.optimizer = Adam({.learning_rate = 0.1}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.fit(all.x, all.y, {.epochs = 20, .verbose = Verbose::kSilent, .batch_size = 16});
  EXPECT_GT(model.evaluate(all.x, all.y, {.verbose = Verbose::kSilent})["accuracy"], 0.9);
  EXPECT_EQ(model.predict(all.x).argmax(1).eq(all.y).to(torch::kDouble).mean().item<double>(),
            model.evaluate(all.x, all.y, {.verbose = Verbose::kSilent})["accuracy"]);
}

CallbackPtr count_batches(std::vector<int64_t>& batches) {
  return LambdaCallback({.on_batch_end = [&](const RunInfo& run, const BatchLogs&) { batches.push_back(run.batch); }});
}

Sequential linear() {
  Sequential model({Dense(3)}, {.dtype = torch::kDouble});
  model.compile(
      {.optimizer = SGD({.learning_rate = 0.01}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  return model;
}

TEST(FitTest, StepsPerEpochCutOnePass) {
  std::vector<int64_t> batches;
  Sequential model = linear();
  const Dataset data = Dataset::from_tensor_slices(clusters()).batch(10);  // 6 batches
  History history = model.fit(
      data.repeat(),
      {.epochs = 2, .steps_per_epoch = 4, .callbacks = {count_batches(batches)}, .verbose = Verbose::kSilent});
  EXPECT_EQ(batches, (std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(model.optimizer().iterations(), 8);
  batches.clear();
  history = model.fit(
      data, {.epochs = 3, .steps_per_epoch = 4, .callbacks = {count_batches(batches)}, .verbose = Verbose::kSilent});
  EXPECT_EQ(batches, (std::vector<int64_t>{0, 1, 2, 3, 0, 1}));  // then the data ran out
  EXPECT_EQ(history.epochs().size(), 2U);
}

TEST(FitTest, InitialEpochAndValidationFrequency) {
  Sequential model = linear();
  const Dataset data = Dataset::from_tensor_slices(clusters()).batch(10);
  const History history = model.fit(data, {.epochs = 5,
                                           .initial_epoch = 2,
                                           .validation_data = data,
                                           .validation_steps = 2,
                                           .validation_freq = 2,
                                           .verbose = Verbose::kSilent});
  EXPECT_EQ(history.epochs(), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(history["val_loss"].size(), 1U);  // epoch 4 of 5
  EXPECT_TRUE(model.fit(data, {.epochs = 2, .initial_epoch = 2}).epochs().empty());
}

TEST(FitTest, ShufflesAnewEachEpoch) {
  const Dataset data = Dataset::from_tensor_slices(torch::arange(8, torch::kDouble).view({8, 1}), torch::zeros({8, 1}))
                           .shuffle(8, {.seed = 1})
                           .batch(8);
  std::vector<double> seen;
  Sequential model({Lambda([&](const torch::Tensor& x) {
                      if (x.size(0) == 8) seen.push_back(x[0].item<double>() * 8 + x[1].item<double>());
                      return x;
                    }),
                    Dense(1)},
                   {.dtype = torch::kDouble});
  model.compile({.optimizer = SGD(), .loss = MeanSquaredError()});
  model.fit(data, {.epochs = 3, .verbose = Verbose::kSilent});
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_TRUE(seen[0] != seen[1] || seen[1] != seen[2]);
}

TEST(FitTest, EndsWithTheAveragesOfTheParameters) {
  Sequential model = linear();
  model.compile({.optimizer = SGD({.learning_rate = 0.5, .ema = {.use_ema = true}}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  model.fit(Dataset::from_tensor_slices(clusters()).batch(10), {.epochs = 2, .verbose = Verbose::kSilent});
  const auto state = model.optimizer().state();
  const auto weights = model.weights();
  std::size_t compared = 0;
  for (const auto& [name, value] : weights) {
    for (const auto& [slot, average] : state) {
      if (slot != name + "/average") continue;
      EXPECT_TRUE(torch::equal(value, average)) << name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, weights.size());
}

TEST(FitTest, ShowsItsProgress) {
  std::ostringstream text;
  Sequential model = linear();
  const Dataset data = Dataset::from_tensor_slices(clusters()).batch(10);
  model.fit(data, {.epochs = 2, .validation_data = data, .output = &text});
  model.evaluate(data, {.output = &text});
  std::istringstream lines(text.str());
  std::string one, two, three;
  std::getline(lines, one);
  std::getline(lines, two);
  std::getline(lines, three);
  EXPECT_EQ(one.rfind("Epoch 1/2 - 6/6 - ", 0), 0U) << one;
  EXPECT_NE(one.find(" - loss: "), std::string::npos);
  EXPECT_NE(one.find(" - val_loss: "), std::string::npos);
  EXPECT_EQ(two.rfind("Epoch 2/2 - 6/6 - ", 0), 0U) << two;
  EXPECT_EQ(three.rfind("6/6 - ", 0), 0U) << three;
}

TEST(FitTest, BatchesAreSplitByTheModel) {
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  const auto scope = strategy.scope();
  torch::manual_seed(1);
  Sequential many = linear();
  const Example batch = clusters(4);
  const Logs untrained = many.test_on_batch(batch);
  EXPECT_NEAR(many.train_on_batch(batch)["loss"], untrained["loss"], 1e-12) << "of the weights before the step";
  const Logs before = many.test_on_batch(batch), after = (many.train_on_batch(batch), many.test_on_batch(batch));
  EXPECT_LT(after["loss"], before["loss"]);
  EXPECT_EQ(many.test_on_batch(clusters(1)).size(), 1U);
}

TEST(FitTest, AnErrorInAReplicaReachesTheCaller) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  Sequential model({Lambda([](const torch::Tensor& x) {
                      if (x.size(0) == 1) throw std::runtime_error("a replica failed");
                      return x;
                    }),
                    Dense(3)},
                   {.dtype = torch::kDouble});
  model.compile({.optimizer = SGD(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  const Dataset data = Dataset::from_tensor_slices(clusters(7)).batch(4);  // the last batch: 2 and 1
  EXPECT_THROW(model.fit(data, {.verbose = Verbose::kSilent}), std::runtime_error);
  EXPECT_EQ(model.fit(data.take(1), {.verbose = Verbose::kSilent}).epochs().size(), 1U);  // and it can go on
}

}  // namespace
}  // namespace cohort::fit_test
