#include "cohort/train/more_callbacks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cohort/data/tfrecord.h"
#include "cohort/error.h"
#include "cohort/train/model.h"
#include "cohort/weights.h"
#include "event.pb.h"
#include "tests/support/errors.h"

namespace cohort::more_callbacks_test {
namespace {

using testing::expect_error;

Dataset data(int64_t batches = 3) {
  return Dataset::from_tensor_slices(torch::ones({2 * batches, 1}), torch::ones({2 * batches, 1})).batch(2);
}

// p = w x, and with a rate of 0.05 the loss falls steadily.
Sequential model(const Optimizer& optimizer = SGD({.learning_rate = 0.05})) {
  Sequential made{Dense({.units = 1, .use_bias = false, .kernel_initializer = Initializer::kZeros})};
  made.compile({.optimizer = optimizer, .loss = MeanSquaredError(), .metrics = {"mae"}});
  return made;
}

// Writes what it is told into the logs, an entry an epoch.
CallbackPtr tell(const std::string& name, std::vector<double> values) {
  return LambdaCallback({.on_epoch_end = [=](const RunInfo& run, Logs& logs) {
    logs.set(name, values.at(static_cast<std::size_t>(run.epoch)));
  }});
}

History run(Model made, std::vector<CallbackPtr> callbacks, int64_t epochs) {
  return made.fit(data(), {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent});
}

std::string read(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Notes the batches at which it is called.
struct Calls {
  std::string text;
  CallbackPtr callback() {
    return LambdaCallback({.on_batch_begin = [this](const RunInfo& info) { text += c10::str(info.batch, "("); },
                           .on_batch_end =
                               [this](const RunInfo& info, const BatchLogs&) {
                                 text += c10::str(")", info.batch, " of ", info.steps, " at ", info.step, " ");
                               }});
  }
};

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("cohort_more_callbacks_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(FilesTest, APreemptionBetweenTwoCallsOfACallbackIsNotHeardByIt) {
  const auto train = [&](std::function<bool()> preempted, Calls& calls) {
    Sequential made = model();
    made.compile({.optimizer = "adam", .loss = "mse", .steps_per_execution = 2});
    const CallbackPtr backup =
        BackupAndRestore({.directory = (folder_ / "backup").string(), .preempted = std::move(preempted)});
    made.fit(data(5), {.epochs = 2, .callbacks = {calls.callback(), backup}, .verbose = Verbose::kSilent});
  };
  Calls whole;
  train({}, whole);
  for (const int batches : {2, 3, 4, 6, 7}) {
    Calls calls;
    int asked = 0;
    EXPECT_THROW(train([&] { return ++asked >= batches; }, calls), Preempted) << batches;
    train({}, calls);
    EXPECT_EQ(calls.text, whole.text) << batches;
  }
}

TEST_F(FilesTest, ACheckpointIsSavedAfterTheStepsAmongWhichItIsDue) {
  std::vector<int64_t> saved;
  Sequential made = model();
  made.compile({.optimizer = "adam", .loss = "mse", .steps_per_execution = 2});
  const CallbackPtr look = LambdaCallback({.on_batch_begin = [&](const RunInfo& info) {
    if (std::filesystem::remove(folder_ / "weights.safetensors")) saved.push_back(info.step);
  }});
  made.fit(data(9), {.callbacks = {look, ModelCheckpoint({.filepath = (folder_ / "weights.safetensors").string(),
                                                          .save_weights_only = true,
                                                          .save_freq = 3})},
                     .verbose = Verbose::kSilent});
  EXPECT_EQ(saved, (std::vector<int64_t>{4, 6})) << "due at 3, 6 and 9, the last of which is the end";
}

// An update takes place in every fourth batch only, but batches are what save_freq counts.
TEST_F(FilesTest, SaveFreqCountsBatchesOverTheEpochs) {
  Sequential made = model(SGD({.learning_rate = 0.05, .gradient = {.gradient_accumulation_steps = 4}}));
  made.fit(data(5), {.epochs = 3,
                     .callbacks = {ModelCheckpoint({.filepath = (folder_ / "{epoch}-{batch}.safetensors").string(),
                                                    .save_weights_only = true,
                                                    .save_freq = 3})},
                     .verbose = Verbose::kSilent});
  std::vector<std::string> saved;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) saved.push_back(entry.path().stem().string());
  std::sort(saved.begin(), saved.end());
  EXPECT_EQ(saved, (std::vector<std::string>{"1-3", "2-1", "2-4", "3-2", "3-5"}));
}

TEST_F(FilesTest, WhatCannotBeMonitoredWithinAnEpochIsRefusedBeforeTheTraining) {
  const auto train = [&](const std::string& monitor, int64_t save_freq) {
    int batches = 0;
    const CallbackPtr count = LambdaCallback({.on_batch_begin = [&](const RunInfo&) { ++batches; }});
    const CallbackPtr save = ModelCheckpoint({.filepath = (folder_ / "best.safetensors").string(),
                                              .monitor = monitor,
                                              .save_best_only = true,
                                              .save_weights_only = true,
                                              .mode = MonitorMode::kMin,
                                              .save_freq = save_freq});
    try {
      model().fit(data(), {.validation_data = data(), .callbacks = {count, save}, .verbose = Verbose::kSilent});
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(batches, 0);
      return std::string(error.what());
    }
    return std::string(std::filesystem::remove(folder_ / "best.safetensors") ? "saved" : "");
  };
  EXPECT_NE(train("val_loss", 3).find("\"val_loss\""), std::string::npos);
  EXPECT_NE(train("nosuch", 3).find("\"nosuch\""), std::string::npos);
  EXPECT_EQ(train("loss", 3), "saved");
  EXPECT_EQ(train("mae", 3), "saved");
  EXPECT_EQ(train("val_loss", 0), "saved");
}

TEST(EarlyStoppingTest, WaitsForItsPatience) {
  const auto epochs = [](std::vector<double> values, const EarlyStoppingOptions& options) {
    const auto size = static_cast<int64_t>(values.size());
    return run(model(), {tell("val_loss", values), EarlyStopping(options)}, size).epochs().size();
  };
  EXPECT_EQ(epochs({5, 4, 4, 3, 3, 3, 9}, {.patience = 2}), 6U);
  EXPECT_EQ(epochs({5, 4, 4, 3, 3, 3, 9}, {}), 3U);
  EXPECT_EQ(epochs({5, 4, 4, 3, 3, 3, 9}, {.patience = 9}), 7U);
  EXPECT_EQ(epochs({5, 4.9, 4.8, 4.7, 1}, {.min_delta = 0.5, .patience = 2}), 3U);
  EXPECT_EQ(epochs({5, 6, 7, 7, 8, 1}, {.patience = 1, .mode = MonitorMode::kMax}), 4U);
  EXPECT_EQ(epochs({5, 4, 3, 2, 1}, {.patience = 2, .baseline = 2.5}), 5U);
  EXPECT_EQ(epochs({5, 4, 3, 2.9, 2.8}, {.patience = 2, .baseline = 0.1}), 5U);  // it still improves
  EXPECT_EQ(epochs({5, 9, 9, 9, 4, 4, 4}, {.patience = 1, .start_from_epoch = 4}), 6U);
  EXPECT_EQ(epochs({NAN, NAN, 3, NAN, NAN}, {.patience = 2}), 2U);
}

TEST(EarlyStoppingTest, DirectionsComeFromTheMetric) {
  EXPECT_EQ(run(model(), {tell("mae", {1, 2, 3}), EarlyStopping({.monitor = "mae"})}, 3).epochs().size(), 2U);
  EXPECT_THROW(run(model(), {EarlyStopping({.monitor = "mine"})}, 2), InvalidArgument);
  EXPECT_EQ(run(model(), {EarlyStopping({.monitor = "val_loss"})}, 3).epochs().size(), 3U);  // not there: a warning
  EXPECT_THROW(EarlyStopping({.patience = -1}), InvalidArgument);
}

TEST(EarlyStoppingTest, RestoresTheBestWeights) {
  Sequential made = model();
  std::vector<double> weights;
  const CallbackPtr note = LambdaCallback({.on_epoch_end = [&](const RunInfo& info, Logs&) {
    weights.push_back(info.model.weights()[0].second.item<double>());
  }});
  run(made, {note, tell("val_loss", {5, 3, 4, 4, 4}), EarlyStopping({.patience = 2, .restore_best_weights = true})}, 5);
  ASSERT_EQ(weights.size(), 4U);
  EXPECT_NE(weights[1], weights[3]);
  EXPECT_EQ(made.weights()[0].second.item<double>(), weights[1]);
}

TEST(LearningRateSchedulerTest, SetsAndLogsTheRate) {
  const History history =
      run(model(), {LearningRateScheduler([](int64_t epoch, double rate) { return epoch < 1 ? rate : rate / 2; })}, 3);
  EXPECT_EQ(history["learning_rate"], (std::vector<double>{0.05, 0.025, 0.0125}));
  const auto scheduled = SGD({.learning_rate = ExponentialDecay({})});
  EXPECT_THROW(run(model(scheduled), {LearningRateScheduler([](int64_t, double rate) { return rate; })}, 1),
               FailedPrecondition);
  EXPECT_THROW(run(model(), {LearningRateScheduler([](int64_t, double) { return NAN; })}, 1), InvalidArgument);
}

TEST(ReduceLROnPlateauTest, ReducesAfterItsPatience) {
  const auto rates = [](std::vector<double> values, const ReduceLROnPlateauOptions& options) {
    const auto size = static_cast<int64_t>(values.size());
    const History history =
        run(model(SGD({.learning_rate = 1.0})), {tell("val_loss", values), ReduceLROnPlateau(options)}, size);
    return history["learning_rate"];
  };
  // The rate that is logged is the one that the epoch was trained with.
  EXPECT_EQ(rates({5, 4, 4, 4, 4, 4}, {.factor = 0.5, .patience = 2}), (std::vector<double>{1, 1, 1, 1, 0.5, 0.5}));
  EXPECT_EQ(rates({5, 5, 5, 5, 5, 5}, {.factor = 0.5, .patience = 1, .cooldown = 2}),
            (std::vector<double>{1, 1, 0.5, 0.5, 0.25, 0.25}));
  EXPECT_EQ(rates({5, 5, 5, 5}, {.factor = 0.5, .patience = 1, .min_lr = 0.4}), (std::vector<double>{1, 1, 0.5, 0.4}));
  EXPECT_EQ(rates({5, 4.99995, 4.9999}, {.factor = 0.5, .patience = 1}), (std::vector<double>{1, 1, 0.5}));
  EXPECT_THROW(ReduceLROnPlateau({.factor = 1.0}), InvalidArgument);
}

TEST(TerminateOnNaNTest, EndsTraining) {
  Sequential made = model();
  made.build({1});
  int batches = 0;
  const CallbackPtr poison = LambdaCallback({.on_batch_begin = [&](const RunInfo& info) {
    if (++batches == 2) info.model.layers()[0].weights()[0].second.data().fill_(NAN);
  }});
  const History history = run(made, {poison, TerminateOnNaN()}, 4);
  EXPECT_EQ(batches, 2);
  EXPECT_TRUE(std::isnan(history["loss"].back()));
  try {
    run(made, {TerminateOnNaN({.fail = true})}, 1);
    ADD_FAILURE() << "no error";
  } catch (const FailedPrecondition& error) {
    EXPECT_NE(std::string(error.what()).find("the loss is nan at batch 1 of epoch 1"), std::string::npos)
        << error.what();
  }
}

TEST_F(FilesTest, CsvLogger) {
  const auto file = folder_ / "log.csv";
  run(model(), {tell("a", {1, 2}), CSVLogger({.file = file})}, 2);
  std::istringstream lines(read(file));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "epoch,loss,mae,a");
  std::getline(lines, line);
  EXPECT_EQ(line.substr(0, 2), "0,");
  EXPECT_EQ(line.substr(line.rfind(',')), ",1");
  run(model(), {CSVLogger({.file = file, .append = true})}, 1);
  const std::string all = read(file);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 4);
  EXPECT_EQ(all.substr(all.rfind(',')), ",NA\n");
  EXPECT_THROW(run(model(), {CSVLogger({.file = folder_ / "none" / "log.csv"})}, 1), Unavailable);
  EXPECT_THROW(CSVLogger({}), InvalidArgument);
}

TEST_F(FilesTest, APipeThatNobodyReadsIsAnError) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const bool append : {false, true}) {
    expect_error<Unavailable>([&] { run(model(), {CSVLogger({.file = pipe, .append = append})}, 1); },
                              "is a pipe that nobody reads");
  }
  expect_error<Unavailable>([&] { run(model(), {MetricsWriter(pipe)}, 1); }, "is a pipe that nobody reads");
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  run(model(), {CSVLogger({.file = pipe})}, 1);
  std::string seen(100, ' ');
  ASSERT_GT(::read(reader, seen.data(), seen.size()), 0);
  EXPECT_TRUE(seen.starts_with("epoch,loss,mae\n0,")) << seen;
  ::close(reader);
}

TEST_F(FilesTest, MetricsWriter) {
  const auto file = folder_ / "metrics.jsonl";
  const CallbackPtr writer = MetricsWriter(file);
  Sequential made = model();
  made.fit(data(), {.epochs = 2, .validation_data = data(), .callbacks = {writer}, .verbose = Verbose::kSilent});
  made.evaluate(data(), {.callbacks = {writer}, .verbose = Verbose::kSilent});
  append_metrics(file, {.step = 9, .epoch = 3, .mode = "train", .metrics = {{"loss", NAN}}});
  std::istringstream lines(read(file));
  std::vector<nlohmann::ordered_json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::ordered_json::parse(line));
  ASSERT_EQ(all.size(), 6U);
  std::vector<std::string> kinds;
  for (const auto& each : all)
    kinds.push_back(each["mode"].get<std::string>() + c10::str(each["epoch"].get<int>(), "@", each["step"].get<int>()));
  EXPECT_EQ(kinds, (std::vector<std::string>{"train1@3", "eval1@3", "train2@6", "eval2@6", "eval2@6", "train3@9"}));
  std::vector<std::string> keys;
  for (const auto& item : all[0].items()) keys.push_back(item.key());
  EXPECT_EQ(keys, (std::vector<std::string>{"step", "epoch", "mode", "loss", "mae", "examples_per_second"}));
  EXPECT_GT(all[0]["examples_per_second"].get<double>(), 0.0);
  EXPECT_TRUE(all[5]["loss"].is_null());
  EXPECT_THROW(append_metrics(folder_ / "none" / "metrics.jsonl", {}), Unavailable);
}

TEST_F(FilesTest, AnEpochThatIsCutShortIsNotDone) {
  const auto file = folder_ / "metrics.jsonl";
  Sequential made = model();
  const auto stop = [](const RunInfo& run, const BatchLogs&) {
    if (run.step == 5) run.model.stop_training();
  };
  made.fit(data(), {.epochs = 4,
                    .callbacks = {MetricsWriter(file), LambdaCallback({.on_batch_end = stop})},
                    .verbose = Verbose::kSilent});
  std::istringstream lines(read(file));
  std::vector<int64_t> epochs;
  for (std::string line; std::getline(lines, line);) epochs.push_back(nlohmann::json::parse(line)["epoch"]);
  EXPECT_EQ(epochs, (std::vector<int64_t>{1, 1}));
  made.save_weights(folder_ / "weights.safetensors");
  EXPECT_EQ(load_weights(folder_ / "weights.safetensors").metadata.at("epoch"), "1");
}

std::map<std::string, std::map<int64_t, double>> curves_of(const std::filesystem::path& folder) {
  std::map<std::string, std::map<int64_t, double>> curves;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    TFRecordReader reader(entry.path());
    while (const auto record = reader.next()) {
      events::Event event;
      EXPECT_TRUE(event.ParseFromString(std::string(*record)));
      for (const auto& value : event.summary().value()) curves[value.tag()][event.step()] = value.simple_value();
    }
  }
  return curves;
}

// Keras 3.15.1 writes these tags at these steps for the same fit().
TEST_F(FilesTest, TensorBoardHasKerasTags) {
  Sequential made = model();
  const CallbackPtr board = TensorBoard({.log_dir = folder_, .histogram_freq = 2, .update_freq = 2});
  const History history =
      made.fit(data(), {.epochs = 2, .validation_data = data(), .callbacks = {board}, .verbose = Verbose::kSilent});
  const auto train = curves_of(folder_ / "train"), validation = curves_of(folder_ / "validation");
  EXPECT_NEAR(train.at("epoch_loss").at(1), history["loss"][1], 1e-6);
  EXPECT_NEAR(train.at("epoch_mae").at(0), history["mae"][0], 1e-6);
  EXPECT_NEAR(train.at("epoch_learning_rate").at(1), 0.05, 1e-6);
  EXPECT_NEAR(validation.at("epoch_loss").at(1), history["val_loss"][1], 1e-6);
  EXPECT_NEAR(validation.at("evaluation_loss_vs_iterations").at(6), history["val_loss"][1], 1e-6);
  ASSERT_EQ(train.at("batch_loss").size(), 3U);
  EXPECT_TRUE(train.at("batch_loss").contains(4));
  EXPECT_EQ(train.at("dense.weight/histogram").size(), 1U);
  EXPECT_THROW(TensorBoard({.log_dir = ""}), InvalidArgument);
  EXPECT_THROW(TensorBoard({.update_freq = -1}), InvalidArgument);
}

}  // namespace
}  // namespace cohort::more_callbacks_test
