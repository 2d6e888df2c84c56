#include "cohort/train/callbacks.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cohort/error.h"
#include "cohort/train/model.h"
#include "cohort/weights.h"
#include "tests/support/errors.h"

namespace cohort::callbacks_test {
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

History run(Model made, std::vector<CallbackPtr> callbacks, int64_t epochs) {
  return made.fit(data(), {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent});
}

std::string read(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("cohort_callbacks_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST(LogsTest, KeepOrderAndReplace) {
  Logs logs{{"loss", 1.0}, {"b", 2.0}};
  logs.set("a", 3.0);
  logs.set("loss", 4.0);
  std::string names;
  for (const auto& item : logs) names += item.first + " ";
  EXPECT_EQ(names, "loss b a ");
  EXPECT_EQ(logs["loss"], 4.0);
  EXPECT_EQ(logs.find("c"), std::nullopt);
  EXPECT_THROW(logs["c"], NotFound);
}

TEST(CallbackTest, AreCalledInOrder) {
  std::string calls;
  const auto note = [&](const char* what) {
    return [&calls, what](const auto&...) { calls += std::string(what) + " "; };
  };
  const CallbackPtr all = LambdaCallback({.on_train_begin = note("train("),
                                          .on_train_end = note(")train"),
                                          .on_epoch_begin = note("epoch("),
                                          .on_epoch_end = note(")epoch"),
                                          .on_batch_begin = note("batch("),
                                          .on_batch_end = note(")batch"),
                                          .on_test_begin = note("test("),
                                          .on_test_end = note(")test")});
  model().fit(
      data(2),
      {.epochs = 2, .validation_data = data(1), .validation_freq = 2, .callbacks = {all}, .verbose = Verbose::kSilent});
  EXPECT_EQ(calls,
            "train( epoch( batch( )batch batch( )batch )epoch "
            "epoch( batch( )batch batch( )batch test( )test )epoch )train ");
}

TEST(CallbackTest, KnowWhereTrainingStands) {
  std::vector<int64_t> steps;
  std::vector<double> losses;
  run(model(),
      {LambdaCallback({.on_epoch_end =
                           [&](const RunInfo& info, Logs& logs) {
                             EXPECT_EQ(info.steps_per_epoch, 3);
                             EXPECT_EQ(info.epochs, 2);
                             EXPECT_GT(info.examples_per_second, 0.0);
                             logs.set("extra", 7.0);
                           },
                       .on_batch_end =
                           [&](const RunInfo& info, const BatchLogs& logs) {
                             steps.push_back(info.step);
                             losses.push_back(logs.loss());
                             EXPECT_EQ(logs.read()["loss"], logs.loss());
                           }})},
      2);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_NEAR(losses[0], 1.0, 1e-6);
  EXPECT_NEAR(losses[1], (1.0 + 0.81) / 2, 1e-6);  // the error shrinks by 0.9 a step; the mean of the epoch so far
  EXPECT_NEAR(losses[3], std::pow(0.9, 6), 1e-6);
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

TEST(CallbackTest, AreCalledOnceInSeveralStepsWithStepsPerExecution) {
  Calls calls;
  std::vector<History> histories;
  for (const int64_t together : {1, 3}) {
    for (const int replicas : {1, 2}) {
      const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
      const auto scope = strategy.scope();
      Sequential made = model();
      made.compile({.optimizer = "adam", .loss = MeanSquaredError(), .steps_per_execution = together});
      calls.text.clear();
      histories.push_back(
          made.fit(data(5), {.epochs = 2, .callbacks = {calls.callback()}, .verbose = Verbose::kSilent}));
      EXPECT_EQ(made.optimizer().iterations(), 10);
    }
  }
  EXPECT_EQ(calls.text, "0()2 of 3 at 3 3()4 of 2 at 5 0()2 of 3 at 8 3()4 of 2 at 10 ");
  for (const History& each : histories) {
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      EXPECT_NEAR(each["loss"][epoch], histories[0]["loss"][epoch], 1e-6);
    }
  }
  Sequential made = model();
  EXPECT_THROW(made.compile({.optimizer = "adam", .loss = "mse", .steps_per_execution = 0}), InvalidArgument);
}

TEST(CallbackTest, HearOfTheBatchesOfEvaluationsAndPredictions) {
  std::string heard;
  const auto note = [&heard](const std::string& what) {
    return [&heard, what](const RunInfo& info) { heard += what + std::to_string(info.batch) + " "; };
  };
  const auto with_logs = [&heard](const RunInfo& info, const BatchLogs& logs) {
    EXPECT_GT(logs.loss(), 0.0);
    EXPECT_TRUE(logs.read().find("mae").has_value());
    heard += "end" + std::to_string(info.batch) + " ";
  };
  const CallbackPtr hearer = LambdaCallback({.on_test_batch_begin = note("test"),
                                             .on_test_batch_end = with_logs,
                                             .on_predict_begin = note("first"),
                                             .on_predict_end = note("last"),
                                             .on_predict_batch_begin = note("from"),
                                             .on_predict_batch_end = note("to")});
  Sequential made = model();
  (void)made.evaluate(data(2), {.callbacks = {hearer}, .verbose = Verbose::kSilent});
  EXPECT_EQ(std::exchange(heard, ""), "test0 end0 test1 end1 ");
  (void)made.predict(data(2), {.callbacks = {hearer}});
  EXPECT_EQ(std::exchange(heard, ""), "first0 from0 to0 from1 to1 last1 ");
  made.compile({.optimizer = SGD(), .loss = MeanSquaredError(), .metrics = {"mae"}, .steps_per_execution = 2});
  (void)made.evaluate(data(3), {.callbacks = {hearer}, .verbose = Verbose::kSilent});
  EXPECT_EQ(std::exchange(heard, ""), "test0 end1 test2 end2 ");
  (void)made.predict(data(3), {.callbacks = {hearer}});
  EXPECT_EQ(heard, "first0 from0 to1 from2 to2 last2 ");
}

TEST(CallbackTest, StopTraining) {
  int batches = 0;
  const History history = run(model(),
                              {LambdaCallback({.on_batch_end =
                                                   [&](const RunInfo& info, const BatchLogs&) {
                                                     if (++batches == 4) info.model.stop_training();
                                                   }})},
                              5);
  EXPECT_EQ(batches, 4);
  EXPECT_EQ(history.epochs().size(), 2U);
}

TEST_F(FilesTest, LinesOfMetricsAreJson) {
  const auto file = folder_ / "metrics.jsonl";
  append_metrics(file, {.step = 9, .epoch = 3, .mode = "train", .metrics = {{"loss", NAN}}});
  const auto line = nlohmann::json::parse(read(file));
  EXPECT_EQ(line["step"], 9);
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_THROW(append_metrics(folder_ / "none" / "metrics.jsonl", {}), Unavailable);
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error<Unavailable>([&] { append_metrics(pipe, {}); }, "is a pipe that nobody reads");
}

}  // namespace
}  // namespace cohort::callbacks_test
