#include "cohort/train/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/error.h"
#include "cohort/train/actions.h"
#include "cohort/train/more_callbacks.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::controller_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;
using ::testing::ElementsAre;

// Counts, and writes down what it was asked for.
class Counter final : public Trainer, public Evaluator {
 public:
  explicit Counter(std::vector<std::string>& calls) : calls_(calls) {}

  int64_t global_step() const override { return step_; }
  Logs train(int64_t steps) override {
    int64_t made = 0;
    for (; made < steps && !ended_; ++made) {
      ++step_;
      ended_ = told_ && told_();
    }
    calls_.push_back("train " + std::to_string(made));
    return {{"loss", loss ? loss(step_) : 1.0}};
  }
  CheckpointData save() override {
    calls_.push_back("save " + std::to_string(step_));
    return {.values = {{"step", std::to_string(step_)}}};
  }
  void restore(const CheckpointData& data, bool keep_input) override {
    step_ = std::stoll(data.values.at("step"));
    calls_.push_back("restore " + std::to_string(step_) + (keep_input ? " here" : ""));
  }
  void end_when(std::function<bool()> told) override { told_ = std::move(told); }
  bool told_to_end() const override { return ended_; }

  Logs evaluate(int64_t steps) override {
    calls_.push_back("evaluate " + std::to_string(step_) + (steps == kAllSteps ? "" : " of " + std::to_string(steps)));
    return {{"accuracy", accuracy ? accuracy(step_) : 0.5}};
  }
  int64_t load(const std::filesystem::path& checkpoint) override { return step_ = read_checkpoint(checkpoint).step; }

  std::function<double(int64_t)> loss;
  std::function<double(int64_t)> accuracy;

 private:
  std::vector<std::string>& calls_;
  int64_t step_ = 0;
  std::function<bool()> told_;
  bool ended_ = false;
};

class ControllerTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::vector<std::string> calls_;
  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>(calls_);

  ControllerOptions options(int64_t interval = 0) {
    return {.trainer = counter_,
            .evaluator = counter_,
            .steps_per_loop = 3,
            .checkpoint_dir = folder_ / "run",
            .checkpoint_interval = interval};
  }
  // Another process' view of the same folder.
  void restart() {
    calls_.clear();
    counter_ = std::make_shared<Counter>(calls_);
  }
};

TEST_F(ControllerTest, StepsAreAbsolute) {
  Controller controller(options());
  controller.train(7);
  EXPECT_THAT(calls_, ElementsAre("train 3", "train 3", "train 1", "save 7"));
  calls_.clear();
  EXPECT_TRUE(controller.train(7).empty());
  controller.train(8, /*checkpoint_at_completion=*/false);
  EXPECT_THAT(calls_, ElementsAre("train 1"));
}

TEST_F(ControllerTest, CheckpointsComeEveryInterval) {
  Controller controller(options(/*interval=*/4));
  controller.train(10);
  EXPECT_THAT(calls_, ElementsAre("train 3", "train 1", "save 4", "train 2", "train 2", "save 8", "train 1", "train 1",
                                  "save 10"));
}

TEST_F(ControllerTest, InnerLoopsAreCutWhereAnEvaluationIsDue) {
  Controller controller(options(/*interval=*/4));
  const Logs logs = controller.train_and_evaluate(10, 2, 4);
  EXPECT_THAT(calls_, ElementsAre("train 3", "train 1", "evaluate 4 of 2", "save 4", "train 2", "train 2",
                                  "evaluate 8 of 2", "save 8", "train 1", "train 1", "evaluate 10 of 2", "save 10"));
  EXPECT_EQ(logs["accuracy"], 0.5);
  calls_.clear();
  EXPECT_TRUE(controller.train_and_evaluate(10, 2, 4).empty());
  EXPECT_TRUE(calls_.empty());
}

TEST_F(ControllerTest, GoesOnWhereItStopped) {
  { Controller(options()).train(5); }
  restart();
  Controller controller(options());
  controller.train(9);
  EXPECT_THAT(calls_, ElementsAre("restore 5", "train 1", "train 3", "save 9"));
}

TEST_F(ControllerTest, MakesUpForAnEvaluationThatAnInterruptionTook) {
  {
    // The evaluation of step 4 never ends.
    Controller controller(options(/*interval=*/1));
    counter_->accuracy = [](int64_t) -> double { throw std::runtime_error("killed"); };
    EXPECT_THROW(controller.train_and_evaluate(8, kAllSteps, 4), std::runtime_error);
  }
  restart();
  {
    Controller controller(options(/*interval=*/1));
    controller.train_and_evaluate(8, kAllSteps, 4);
    EXPECT_THAT(calls_, ElementsAre("restore 3", "train 1", "evaluate 4", "save 4", "train 1", "save 5", "train 1",
                                    "save 6", "train 1", "save 7", "train 1", "evaluate 8", "save 8"));
  }
  restart();
  { Controller(options()).train(12); }
  restart();
  Controller controller(options());
  controller.train_and_evaluate(16, kAllSteps, 12);
  EXPECT_THAT(calls_, ElementsAre("restore 12", "evaluate 12", "train 3", "train 1", "evaluate 16", "save 16"));
}

TEST_F(ControllerTest, BeginsWithInitFnWhereThereIsNoCheckpoint) {
  int begun = 0;
  ControllerOptions with = options();
  with.init_fn = [&] { ++begun; };
  { Controller(with).train(1); }
  EXPECT_EQ(begun, 1);
  restart();
  with.trainer = counter_;
  { Controller(with).train(2); }
  EXPECT_EQ(begun, 1);
}

TEST_F(ControllerTest, APreemptionIsSavedAndThrown) {
  ControllerOptions with = options();
  with.preempted = [this] { return counter_->global_step() >= 5; };
  Controller controller(with);
  expect_error<Preempted>([&] { controller.train(100); }, "training was left after step 5, which is saved");
  EXPECT_THAT(calls_, ElementsAre("train 3", "train 2", "save 5"));
}

TEST_F(ControllerTest, ActionsSeeTheLogsAndMayStop) {
  std::vector<int64_t> steps;
  ControllerOptions with = options();
  with.train_actions = {[&](const ActionInfo& info) {
    steps.push_back(info.step);
    if (info.step >= 6) info.controller.stop();
  }};
  with.eval_actions = {[&](const ActionInfo& info) { EXPECT_EQ(info.logs["accuracy"], 0.5); }};
  Controller controller(with);
  controller.train_and_evaluate(100);
  EXPECT_THAT(steps, ElementsAre(3, 6));
  EXPECT_THAT(calls_, ElementsAre("train 3", "train 3", "evaluate 6", "save 6"));
}

TEST_F(ControllerTest, SummariesComeEveryIntervalAndAtTheEnd) {
  std::vector<int64_t> steps;
  ControllerOptions with = options();
  with.summary_interval = 5;
  with.summary_actions = {[&](const ActionInfo& info) { steps.push_back(info.step); }};
  Controller controller(with);
  controller.train(7);
  EXPECT_THAT(calls_, ElementsAre("train 3", "train 2", "train 1", "train 1", "save 7"));
  EXPECT_THAT(steps, ElementsAre(5, 7));
  controller.train_and_evaluate(10, kAllSteps, 4);
  controller.train_and_evaluate(11);
  EXPECT_THAT(steps, ElementsAre(5, 7, 10, 11));
}

TEST_F(ControllerTest, EvaluatesTheCheckpointsOfAnotherProcess) {
  { Controller(options(/*interval=*/3)).train(9); }
  restart();
  ControllerOptions with = options();
  with.trainer = nullptr;
  with.evaluator = counter_;
  EXPECT_EQ(Controller(with).evaluate_continuously(/*train_steps=*/9), 1);
  EXPECT_THAT(calls_, ElementsAre("evaluate 9"));
  expect_error<DeadlineExceeded>(
      [&] { Controller(with).evaluate_continuously(10, kAllSteps, std::chrono::milliseconds(50)); }, "[checkpoint]");
}

TEST_F(ControllerTest, RefusesWhatMakesNoSense) {
  expect_error<InvalidArgument>([] { Controller({}); }, "there is no trainer and no evaluator");
  ControllerOptions with = options();
  with.steps_per_loop = 0;
  expect_error<InvalidArgument>([&] { Controller{with}; }, "steps_per_loop is 0, wanted 1 or more");
  ControllerOptions in_shards = options();
  in_shards.sharded_checkpoints = true;
  expect_error<InvalidArgument>([&] { Controller{in_shards}; }, "the trainer does not return shards");
  Controller controller(options());
  expect_error<InvalidArgument>([&] { controller.evaluate(0); }, "steps is 0, wanted 1 or more, or kAllSteps");
  expect_error<InvalidArgument>([&] { controller.train_and_evaluate(5, kAllSteps, -1); }, "eval_interval is -1");
}

TEST_F(ControllerTest, RecoveryGoesBackToTheLatestCheckpointAndOnWithTheData) {
  int bad = 0;
  counter_->loss = [&](int64_t step) { return step == 9 && bad++ == 0 ? std::nan("") : 1.0; };
  ControllerOptions with = options(/*interval=*/6);
  with.train_actions = {Recovery({.max_trials = 1})};
  Controller controller(with);
  controller.train(9);
  EXPECT_THAT(calls_, ElementsAre("train 3", "train 3", "save 6", "train 3", "restore 6 here", "train 3", "save 9"));
  bad = -100;
  counter_->loss = [](int64_t) { return 1e7; };
  expect_error<FailedPrecondition>([&] { controller.train(12); },
                                   "the loss is 1e+07 after step 12, wanted at most 1e+06");
}

TEST_F(ControllerTest, TheBestCheckpointIsKeptOverRestarts) {
  std::vector<double> values = {0.5, 0.7, 0.6, std::nan(""), 0.65, 0.8};
  const auto run = [&](int64_t steps) {
    ControllerOptions with = options();
    counter_->accuracy = [&](int64_t step) { return values.at(static_cast<std::size_t>(step - 1)); };
    with.eval_actions = {BestCheckpoint({.metric = "accuracy",
                                         .directory = folder_ / "best",
                                         .save = [](const auto& path) { std::ofstream(path) << path.filename(); }})};
    Controller(with).train_and_evaluate(steps, kAllSteps, 1);
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "best")) {
      if (entry.path().filename() != "info.json") found.push_back(entry.path().filename());
    }
    return found;
  };
  EXPECT_THAT(run(4), ElementsAre("best_ckpt-2"));
  restart();
  EXPECT_THAT(run(5), ElementsAre("best_ckpt-2"));
  restart();
  EXPECT_THAT(run(6), ElementsAre("best_ckpt-6"));
  std::ifstream in(folder_ / "best/info.json");
  const nlohmann::json info = nlohmann::json::parse(in);
  EXPECT_EQ(info.at("accuracy"), 0.8);
  EXPECT_EQ(info.at("best_ckpt_global_step"), 6);
}

TEST_F(ControllerTest, WhatCouldNotBeSavedIsNotTheBestCheckpoint) {
  std::vector<std::string> saved;
  ControllerOptions with = options();
  counter_->accuracy = [](int64_t step) { return step == 3 ? 0.9 : 0.8; };
  with.eval_actions = {
      BestCheckpoint({.metric = "accuracy", .directory = folder_ / "best", .save = [&](const auto& path) {
                        if (counter_->global_step() == 3) throw Unavailable("the disk is full");
                        saved.push_back(path.filename());
                      }})};
  Controller controller(with);
  EXPECT_THROW(controller.train_and_evaluate(3), Unavailable);
  controller.train_and_evaluate(6);
  EXPECT_THAT(saved, ElementsAre("best_ckpt-6"));
}

TEST_F(ControllerTest, EarlyStopWaitsForItsPatience) {
  counter_->accuracy = [](int64_t step) { return step < 3 ? 0.1 * static_cast<double>(step) : 0.1; };
  ControllerOptions with = options();
  with.eval_actions = {EarlyStop({.metric = "accuracy", .comparison = Comparison::kHigher, .patience = 1})};
  Controller(with).train_and_evaluate(100, kAllSteps, 1);
  EXPECT_EQ(counter_->global_step(), 4);
}

// Killed again and again it ends where it ends undisturbed, and stays ended.
TEST_F(ControllerTest, EarlyStopGoesOnAfterAnInterruption) {
  struct Killed {};
  const auto run = [&](int64_t kill_at) {
    restart();
    counter_->accuracy = [](int64_t step) { return step < 3 ? 0.1 * static_cast<double>(step) : 0.1; };
    const auto kill = [&](const ActionInfo& info) {
      if (info.step == kill_at) throw Killed();
    };
    const Action stop = EarlyStop({.metric = "accuracy", .comparison = Comparison::kHigher, .patience = 3});
    ControllerOptions with = options(/*interval=*/1);
    with.eval_actions = {ConditionalAction([](const ActionInfo&) { return true; }, stop), kill};
    Controller(with).train_and_evaluate(100, kAllSteps, 1);
  };
  for (const int64_t cut : {2, 4, 5, 6}) EXPECT_THROW(run(cut), Killed) << "at " << cut;
  run(-1);
  EXPECT_EQ(counter_->global_step(), 6);
  run(-1);
  EXPECT_EQ(counter_->global_step(), 6);
  EXPECT_THAT(calls_, ElementsAre("restore 6"));
}

}  // namespace
}  // namespace cohort::controller_test
