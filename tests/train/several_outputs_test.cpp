// Models with several inputs and outputs: what is computed, what it is called, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::several_outputs_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using torch::Tensor;

// Multiplies its inputs by parameters that begin as 1.
struct ScaleImpl : torch::nn::Module {
  ScaleImpl() { factors = register_parameter("factors", torch::ones({2}, torch::kDouble)); }
  std::tuple<Tensor, Tensor> forward(const Tensor& a, const Tensor& b) { return {a * factors[0], b * factors[1]}; }
  Tensor factors;
};
TORCH_MODULE(Scale);

struct OneOrTwoImpl : ScaleImpl {
  Tensor forward(const Tensor& a, const Tensor& b = {}) { return (b.defined() ? a + b : a) * factors[0]; }
};
TORCH_MODULE(OneOrTwo);

struct MapsImpl : ScaleImpl {
  std::map<std::string, Tensor> forward(const std::map<std::string, Tensor>& in) {
    return {{"first", in.at("a") * factors[0]}, {"second", in.at("b") * factors[1]}};
  }
};
TORCH_MODULE(Maps);

struct ListsImpl : ScaleImpl {
  std::vector<Tensor> forward(const std::vector<Tensor>& in) { return {in.at(0) * factors[0], in.at(1) * factors[1]}; }
};
TORCH_MODULE(Lists);

Example batch() {
  const Tensor a = torch::tensor({{1.0, 2.0}, {3.0, 5.0}, {2.0, 4.0}}, torch::kDouble);
  return {.inputs = {{"a", a}, {"b", a.slice(1, 0, 1) - 1.0}},
          .targets = {{"first", torch::zeros_like(a)}, {"second", torch::ones({3, 1}, torch::kDouble)}}};
}

CompileOptions options() {
  return {.optimizer = SGD({.learning_rate = 0.1}), .losses = {{"first", "mse"}, {"second", "mae"}}};
}

Model compiled(const CompileOptions& compile) {
  Model model([] { return Scale(); });
  model.compile(compile);
  return model;
}

double mean_square(std::initializer_list<double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  return sum / static_cast<double>(values.size());
}

TEST(SeveralOutputsTest, LossesHaveWeightsOfTheirOwn) {
  CompileOptions compile = options();
  compile.loss_weights = {{"second", 0.25}};
  Model model = compiled(compile);
  const Logs logs = model.test_on_batch(batch());
  const double first = mean_square({1, 2, 3, 5, 2, 4});
  const double second = (1.0 + 1.0 + 0.0) / 3.0;  // 0, 2 and 1 against 1
  EXPECT_DOUBLE_EQ(logs["first_loss"], first);
  EXPECT_DOUBLE_EQ(logs["second_loss"], second);
  EXPECT_DOUBLE_EQ(logs["loss"], first + 0.25 * second);
}

TEST(SeveralOutputsTest, WeightsOfExamplesAreForAllOutputsOrForOne) {
  Model model = compiled(options());
  Example weighted = batch();
  weighted.weight = torch::tensor({1.0, 0.0, 2.0}, torch::kDouble);
  weighted.weights = {{"second", torch::tensor({3.0, 1.0, 0.5}, torch::kDouble)}};
  const Logs logs = model.test_on_batch(weighted);
  EXPECT_DOUBLE_EQ(logs["first_loss"], (1.0 * mean_square({1, 2}) + 2.0 * mean_square({2, 4})) / 3.0);
  EXPECT_DOUBLE_EQ(logs["second_loss"], (3.0 * 1.0 + 0.0 + 2.0 * 0.5 * 0.0) / 3.0);
}

// A masked part is in no sum and in no number that a sum is divided by, as in Keras.
TEST(SeveralOutputsTest, MaskedPartsAreNoPartOfTheMean) {
  CompileOptions compile = options();
  compile.output_metrics = {{"first", {"mse"}}, {"second", {"mse"}}};
  for (const int replicas : {1, 2, 3}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const auto scope = strategy.scope();
    Model model = compiled(compile);
    Example masked = batch();
    masked.masks = {{"first", torch::tensor({{true, false}, {true, true}, {false, false}})}};
    masked.weights = {{"first", torch::tensor({2.0, 1.0, 7.0}, torch::kDouble)}};
    const Logs logs = model.test_on_batch(masked);
    EXPECT_NEAR(logs["first_loss"], (2.0 * 1.0 + 9.0 + 25.0) / 3.0, 1e-12);
    EXPECT_NEAR(logs["first_mse"], (1.0 + 9.0 + 25.0) / 3.0, 1e-12);
    EXPECT_NEAR(logs["second_loss"], 2.0 / 3.0, 1e-12);
    EXPECT_NEAR(logs["loss"], logs["first_loss"] + logs["second_loss"], 1e-12);
  }
}

TEST(SeveralOutputsTest, AMaskOfTheOnlyOutput) {
  Model model([] { return OneOrTwo(); });
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse", .metrics = {"mae"}});
  const Example columns = batch();
  Example masked{
      .x = columns.inputs[0].second, .y = columns.targets[0].second, .mask = torch::tensor({true, false, true})};
  const Logs logs = model.test_on_batch(masked);
  EXPECT_DOUBLE_EQ(logs["loss"], mean_square({1, 2, 2, 4}));
  EXPECT_DOUBLE_EQ(logs["mae"], 9.0 / 4.0);
  masked.mask = torch::zeros({3}, torch::kBool);
  EXPECT_DOUBLE_EQ(model.test_on_batch(masked)["loss"], 0.0);
  masked.mask = torch::ones({2}, torch::kBool);
  masked.x = masked.x.slice(0, 0, 2);
  masked.y = masked.y.slice(0, 0, 2);
  EXPECT_DOUBLE_EQ(model.test_on_batch(masked)["loss"], mean_square({1, 2, 3, 5}));
  masked.mask = torch::ones({2, 3}, torch::kBool);
  expect_error<InvalidArgument>([&] { (void)model.test_on_batch(masked); }, "the mask has shape [2, 3]");
}

TEST(SeveralOutputsTest, AStepIsThatOfLibTorch) {
  Example weighted = batch();
  weighted.masks = {{"first", torch::tensor({{true, false}, {true, true}, {false, true}})}};
  weighted.weights = {{"second", torch::tensor({2.0, 1.0, 0.5}, torch::kDouble)}};
  CompileOptions compile = options();
  compile.loss_weights = {{"first", 0.3}};
  for (const int replicas : {1, 2}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const auto scope = strategy.scope();
    Model model = compiled(compile);
    Tensor factors = torch::ones({2}, torch::kDouble);
    for (int step = 0; step < 3; ++step) {
      Tensor leaf = factors.detach().requires_grad_(true);
      const Tensor squares = (weighted.inputs[0].second * leaf[0] - weighted.targets[0].second).square();
      const Tensor differences = (weighted.inputs[1].second * leaf[1] - weighted.targets[1].second).abs();
      const Tensor mask = weighted.masks[0].second.to(torch::kDouble);
      const Tensor first = (squares * mask).sum() / mask.sum();
      const Tensor second = (differences.squeeze(1) * weighted.weights[0].second).sum() / 3.0;
      const Tensor loss = 0.3 * first + second;
      loss.backward();
      factors = factors - 0.1 * leaf.grad();
      const Logs logs = model.train_on_batch(weighted);
      EXPECT_NEAR(logs["loss"], loss.item<double>(), 1e-12);
      EXPECT_NEAR(logs["second_loss"], second.item<double>(), 1e-12);
    }
    EXPECT_TRUE(torch::allclose(model.weights()[0].second, factors, 0.0, 1e-12));
  }
}

TEST(SeveralOutputsTest, LogsAreNamedAsKerasNamesThem) {
  CompileOptions compile = options();
  compile.output_metrics = {{"first", {"mae", "mae"}}};
  compile.weighted_output_metrics = {{"second", {RootMeanSquaredError({.name = "rmse"})}}};
  Model model = compiled(compile);
  const Dataset data = Dataset::from_tensor_slices(batch()).batch(2);
  const History history = model.fit(data, {.epochs = 2, .validation_data = data, .verbose = Verbose::kSilent});
  EXPECT_THAT(history.names(), ::testing::ElementsAre("loss", "first_loss", "second_loss", "first_mae", "first_mae_1",
                                                      "second_rmse", "val_loss", "val_first_loss", "val_second_loss",
                                                      "val_first_mae", "val_first_mae_1", "val_second_rmse"));
  EXPECT_EQ(model.direction("val_second_loss"), Direction::kDown);
  EXPECT_EQ(model.direction("first_mae"), Direction::kDown);
  EXPECT_EQ(model.direction("third_loss"), Direction::kUnknown);
  // One output is called by no name in logs.
  Model one([] { return OneOrTwo(); });
  one.compile({.optimizer = SGD({}), .losses = {{"first", "mse"}}, .output_metrics = {{"first", {"mae"}}}});
  const Example columns = batch();
  const Logs logs = one.test_on_batch({.inputs = columns.inputs, .targets = {columns.targets[0]}});
  EXPECT_EQ(logs.begin()->first, "loss");
  EXPECT_TRUE(logs.contains("mae"));
}

TEST(SeveralOutputsTest, EveryFormOfForwardIsCalled) {
  const Example columns = batch();
  const Tensor a = columns.inputs[0].second;
  const Tensor b = columns.inputs[1].second;
  const auto expect_both = [&](Model model, const std::vector<std::string>& names) {
    const NamedTensors outputs = model.predict_outputs(columns, {.batch_size = 2});
    ASSERT_EQ(outputs.size(), 2U);
    EXPECT_EQ(outputs[0].first, names[0]);
    EXPECT_EQ(outputs[1].first, names[1]);
    EXPECT_TRUE(torch::equal(outputs[0].second, a));
    EXPECT_TRUE(torch::equal(outputs[1].second, b));
    expect_error<InvalidArgument>([&] { (void)model.predict(Dataset::from_tensor_slices(columns).batch(2)); },
                                  "\"" + names[1] + "\": call predict_outputs()");
  };
  expect_both(Model([] { return Scale(); }), {"output_1", "output_2"});
  expect_both(Model([] { return std::make_shared<ScaleImpl>(); }, {.outputs = {"x", "y"}}), {"x", "y"});
  expect_both(Model([] { return Lists(); }), {"output_1", "output_2"});
  expect_both(Model([] { return Maps(); }), {"first", "second"});
  expect_both(compiled(options()), {"first", "second"});
  Model either([] { return OneOrTwo(); });
  EXPECT_TRUE(torch::equal(either.predict(Dataset::from_tensor_slices(columns).batch(2)), a + b));
  EXPECT_TRUE(torch::equal(either.predict(a), a));
  EXPECT_EQ(either.predict_outputs({.x = a})[0].first, "output");
  // Outputs go by the names that the model was made with, whatever order the examples have.
  Model turned([] { return Scale(); }, {.inputs = {"b", "a"}, .outputs = {"second", "first"}});
  EXPECT_TRUE(torch::equal(turned.predict_outputs(columns)[0].second, b));
  turned.compile(options());
  EXPECT_DOUBLE_EQ(turned.test_on_batch(columns)["first_loss"], mean_square({1, 2, 3, 5, 2, 4}));
}

TEST(SeveralOutputsTest, ASequentialTakesItsInputByName) {
  Sequential model{Dense(1)};
  model.compile({.optimizer = SGD({}), .loss = "mse"});
  const Tensor x = torch::randn({5, 2});
  const Logs logs = model.test_on_batch({.inputs = {{"in", x}}, .targets = {{"out", torch::zeros({5, 1})}}});
  EXPECT_NEAR(logs["loss"], model.predict(x).square().mean().item<double>(), 1e-6);
  Sequential other{Dense(1)};
  other.compile({.optimizer = SGD({}), .loss = "mse"});
  expect_error<InvalidArgument>(
      [&] {
        (void)other.test_on_batch({.y = torch::zeros({5, 1}), .inputs = {{"a", x}, {"b", x}}});
      },
      "a Sequential has one input, the examples have \"a\", \"b\"");
}

TEST(SeveralOutputsTest, WhatDoesNotFitAtCompileIsNamed) {
  const auto refused = [](const CompileOptions& compile, const std::string& part, ModelOptions made = {}) {
    Model model([] { return Scale(); }, made);
    expect_error<InvalidArgument>([&] { model.compile(compile); }, part);
  };
  CompileOptions compile = options();
  compile.loss = "mse";
  refused(compile, "both loss and losses are set");
  refused({.optimizer = SGD({})}, "there is no loss");
  compile = options();
  refused(compile, "the output \"third\" has no loss", {.outputs = {"first", "second", "third"}});
  refused(compile, "losses has \"second\", which is no output; there are \"first\"", {.outputs = {"first"}});
  refused({.optimizer = SGD({}), .loss = "mse"}, "the model has 2 outputs; set losses", {.outputs = {"a", "b"}});
  compile.loss_weights = {{"third", 1.0}};
  refused(compile, "loss_weights has \"third\", which is no output; there are \"first\", \"second\"");
  compile.loss_weights = {{"first", std::nan("")}};
  refused(compile, "that of \"first\" is nan");
  compile = options();
  compile.metrics = {"mae"};
  refused(compile, "give them metrics by name");
  compile = options();
  compile.output_metrics = {{"third", {"mae"}}};
  refused(compile, "output_metrics has \"third\", which is no output");
  compile = options();
  compile.losses.emplace_back("first", "mse");
  refused(compile, "losses has \"first\" twice");
  refused({.optimizer = SGD({}), .losses = {{"first", std::nullopt}}}, "none of the outputs \"first\" has a loss");
  compile = options();
  compile.losses[1].second = std::nullopt;
  compile.loss_weights = {{"second", 1.0}};
  refused(compile, "loss_weights has \"second\", which has no loss");
  refused({.optimizer = SGD({}), .loss = "mse", .output_metrics = {{"first", {"mae"}}}}, "set losses to name it");
}

TEST(SeveralOutputsTest, ExamplesThatDoNotFitAreNamed) {
  const auto refused = [](Model model, const std::function<void(Example&)>& change, const std::string& part) {
    Example columns = batch();
    change(columns);
    expect_error<InvalidArgument>([&] { (void)model.train_on_batch(columns); }, part);
  };
  const Tensor column = torch::zeros({3, 1}, torch::kDouble);
  const Model model = compiled(options());
  refused(
      model, [&](Example& e) { e.targets.pop_back(); }, "no target for the output \"second\"; they have \"first\"");
  refused(
      model, [&](Example& e) { e.targets.emplace_back("third", column); }, "targets has \"third\"");
  refused(
      model, [&](Example& e) { e.masks.emplace_back("third", column); }, "masks has \"third\"");
  refused(
      model, [&](Example& e) { e.weights.emplace_back("third", column); }, "weights has \"third\"");
  refused(
      model, [&](Example& e) { e.targets.emplace_back("first", column); }, "targets has \"first\" twice");
  refused(
      model, [&](Example& e) { e.y = column; }, "the examples have y and targets \"first\", \"second\"");
  refused(
      model, [&](Example& e) { e.x = column; }, "the examples have x and inputs \"a\", \"b\"");
  refused(
      model, [&](Example& e) { e.inputs.pop_back(); }, "forward() takes 2 tensors, the examples have 1: \"a\"");
  refused(
      model,
      [&](Example& e) {
        e.masks = {{"second", torch::ones({3, 2})}};
      },
      "the mask of \"second\" has shape [3, 2], wanted the first dimensions of the prediction's [3, 1]");
  const auto only_y = [&](Example& e) {
    e.targets.clear();
    e.y = column;
  };
  refused(model, only_y, "the examples have y, but there are the outputs \"first\", \"second\"");

  Model named([] { return Scale(); }, {.inputs = {"a", "c"}});
  named.compile(options());
  refused(
      named, [](Example&) {}, "the examples have the inputs \"a\", \"b\", the model takes a c");
  Model single([] { return Scale(); });
  single.compile({.optimizer = SGD({}), .loss = "mse"});
  refused(
      single, [](Example&) {}, "whose columns are y, weight and mask or have one name");
  refused(single, only_y, "forward() returned 2 outputs; there is one loss");
  Model maps([] { return Maps(); });
  CompileOptions compile = options();
  compile.losses[1].first = "third";
  maps.compile(compile);
  refused(
      maps, [](Example& e) { e.targets[1].first = "third"; },
      "losses has \"third\", but forward() returned \"first\", \"second\"");
  compile.losses.pop_back();
  maps.compile(compile);
  refused(
      maps, [](Example& e) { e.targets.pop_back(); }, "the output \"second\" has no loss");
}

TEST(SeveralOutputsTest, AnOutputWithoutALossIsPredictedAndMeasured) {
  CompileOptions compile = options();
  compile.losses[1].second = std::nullopt;
  Model model = compiled(compile);
  Example columns = batch();
  columns.targets.pop_back();
  const Logs logs = model.test_on_batch(columns);
  EXPECT_DOUBLE_EQ(logs["loss"], logs["first_loss"]);
  EXPECT_FALSE(logs.contains("second_loss"));
  EXPECT_EQ(model.predict_outputs(columns)[1].first, "second");
  compile.output_metrics = {{"second", {"mae"}}};
  model.compile(compile);
  EXPECT_DOUBLE_EQ(model.test_on_batch(batch())["second_mae"], 2.0 / 3.0);
  expect_error<InvalidArgument>([&] { (void)model.test_on_batch(columns); }, "no target for the output \"second\"");
}

TEST(SeveralOutputsTest, GoOnFromCheckpointsWithTheSameBits) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const TemporaryFolder folder;
  Example columns = batch();
  columns.masks = {{"first", torch::tensor({{true, false}, {true, true}, {false, true}})}};
  const Dataset data = Dataset::from_tensor_slices(columns).shuffle(3, {.seed = 4}).batch(2);
  const auto train = [&](std::vector<CallbackPtr> callbacks, int64_t epochs) {
    CompileOptions compile = options();
    compile.optimizer = Adam({.learning_rate = 0.05});
    compile.output_metrics = {{"first", {"mae"}}};
    Model model = compiled(compile);
    const History history =
        model.fit(data, {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent});
    const Logs logs = model.evaluate(data, {.verbose = Verbose::kSilent});
    return std::tuple(model.weights()[0].second, history["second_loss"].back(), logs["first_mae"]);
  };
  const auto whole = train({}, 4);
  (void)train({ModelCheckpoint({.filepath = (folder.path() / "at-{epoch}").string(), .save_weights_only = false})}, 2);
  const auto resume = LambdaCallback({.on_train_begin = [&](const RunInfo& run) {
    EXPECT_TRUE(run.training->resume([&] { return read_checkpoint(folder.path() / "at-2").data; }));
  }});
  const auto resumed = train({resume}, 4);
  EXPECT_TRUE(torch::equal(std::get<0>(resumed), std::get<0>(whole)));
  EXPECT_EQ(std::get<1>(resumed), std::get<1>(whole));
  EXPECT_EQ(std::get<2>(resumed), std::get<2>(whole));
}

TEST(SeveralOutputsTest, TrainUnderAControllerAndAreFollowedByAnEvaluator) {
  const TemporaryFolder folder;
  const Dataset data = Dataset::from_tensor_slices(batch()).batch(2);
  Model model = compiled(options());
  ModelTrainer trainer(model, {.train = data.repeat(), .validation = data, .verbose = Verbose::kSilent});
  const Logs trained = trainer.train(4);
  EXPECT_TRUE(trained.contains("second_loss"));
  const Logs evaluated = trainer.evaluate(kAllSteps);
  EXPECT_DOUBLE_EQ(evaluated["loss"], evaluated["first_loss"] + evaluated["second_loss"]);

  (void)model.fit(data, {.epochs = 1,
                         .callbacks = {BackupAndRestore({.directory = folder / "run", .delete_checkpoint = false})},
                         .verbose = Verbose::kSilent});
  double second = 0.0;
  const auto note =
      LambdaCallback({.on_test_end = [&](const RunInfo& /*run*/, const Logs& logs) { second = logs["second_loss"]; }});
  SidecarEvaluator evaluator(
      compiled(options()), data,
      {.checkpoint_dir = folder / "run",
       .follow = {.name = "backup", .poll = std::chrono::milliseconds(2), .timeout = std::chrono::seconds(20)},
       .evaluate = {.callbacks = {note}, .verbose = Verbose::kSilent}});
  EXPECT_EQ(evaluator.start(), 1);
  EXPECT_EQ(second, model.evaluate(data, {.verbose = Verbose::kSilent})["second_loss"]);
}

}  // namespace
}  // namespace cohort::several_outputs_test
