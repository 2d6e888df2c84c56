// The one loop of a training: the order of its moments, and who is told of them, by both of its faces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/train/actions.h"
#include "cohort/train/model.h"
#include "cohort/train/training_run.h"
#include "tests/support/files.h"
#include "train/loop/loop.h"

namespace cohort::rounds_test {
namespace {

using ::testing::ElementsAre;

using Names = std::vector<std::string>;

const char* name_of(Moment moment) {
  switch (moment) {
    case Moment::kTrainBegin:
      return "train begin";
    case Moment::kRoundBegin:
      return "round begin";
    case Moment::kStepBegin:
      return "step begin";
    case Moment::kStepEnd:
      return "step end";
    case Moment::kStepsEnd:
      return "steps end";
    case Moment::kSummary:
      return "summary";
    case Moment::kEvaluationBegin:
      return "evaluation begin";
    case Moment::kEvaluationEnd:
      return "evaluation end";
    case Moment::kRoundEnd:
      return "round end";
    case Moment::kCheckpoint:
      return "checkpoint";
    case Moment::kTrainEnd:
      return "train end";
    case Moment::kPreemption:
      return "preemption";
    case Moment::kTestStepBegin:
    case Moment::kTestStepEnd:
    case Moment::kPredictBegin:
    case Moment::kPredictStepBegin:
    case Moment::kPredictStepEnd:
    case Moment::kPredictEnd:
      break;  // rounds tell nobody of them
  }
  return "";
}

constexpr std::array kMoments = {Moment::kTrainBegin,      Moment::kRoundBegin,    Moment::kStepBegin,
                                 Moment::kStepEnd,         Moment::kStepsEnd,      Moment::kSummary,
                                 Moment::kEvaluationBegin, Moment::kEvaluationEnd, Moment::kRoundEnd,
                                 Moment::kCheckpoint,      Moment::kTrainEnd,      Moment::kPreemption};

// Rounds that write down what they are asked to do, between the moments that the listeners hear of.
class Noted final : public Rounds {
 public:
  Noted(Names& names, std::vector<Moment> due, int rounds) : names_(names), due_(std::move(due)), rounds_(rounds) {}

  void prepare() override { names_.emplace_back("prepare"); }
  bool begin_round() override { return made_ < rounds_; }
  Logs train() override {
    names_.emplace_back("train");
    return {{"loss", ++made_}};
  }
  bool went_back() const override { return made_ == back_; }
  bool due(Moment moment) const override { return std::find(due_.begin(), due_.end(), moment) != due_.end(); }
  void evaluate(Logs& logs) override {
    names_.emplace_back("evaluate");
    logs.set("val_loss", logs["loss"] + 1.0);
  }
  void complete_round() override { names_.emplace_back("complete"); }
  void end_round(const Logs& logs) override { names_.push_back(c10::str("end with ", logs.size(), " logs")); }

  int back_ = -1;  // the round in which a listener goes back

 private:
  Names& names_;
  std::vector<Moment> due_;
  int rounds_;
  int made_ = 0;
};

Listeners noting(Names& names) {
  Listeners listeners(kActions);
  for (const Moment moment : kMoments) {
    listeners.add(moment, [&names, moment](const Logs& /*logs*/) { names.emplace_back(name_of(moment)); });
  }
  return listeners;
}

TEST(Rounds, GoesThroughTheMomentsInTheirOrder) {
  Names names;
  Noted rounds(names, {Moment::kSummary, Moment::kEvaluationBegin, Moment::kCheckpoint}, 1);
  const Logs logs = run_rounds(rounds, noting(names));
  EXPECT_THAT(names, ElementsAre("train begin", "prepare", "round begin", "train", "steps end", "summary", "evaluate",
                                 "complete", "round end", "checkpoint", "end with 2 logs", "train end"));
  EXPECT_EQ(logs["loss"], 1.0);
  EXPECT_EQ(logs["val_loss"], 2.0);
}

TEST(Rounds, LeavesOutWhatIsNotDueAndARoundThatWentBack) {
  Names names;
  Noted rounds(names, {}, 2);
  rounds.back_ = 1;
  EXPECT_EQ(run_rounds(rounds, noting(names))["loss"], 2.0);
  EXPECT_THAT(names, ElementsAre("train begin", "prepare", "round begin", "train", "steps end", "round begin", "train",
                                 "steps end", "complete", "round end", "end with 1 logs", "train end"));
}

TEST(Rounds, HasNoLogsWithoutARound) {
  Names names;
  Noted rounds(names, {Moment::kSummary}, 0);
  EXPECT_TRUE(run_rounds(rounds, noting(names)).empty());
  EXPECT_THAT(names, ElementsAre("train begin", "prepare", "train end"));
}

// A callback that writes down its name at every moment.
class Named final : public Callback {
 public:
  Named(Names& names, std::string name, int turn) : names_(names), name_(std::move(name)), turn_(turn) {}

  void on_train_begin(const RunInfo& /*run*/) override { note("on_train_begin"); }
  void on_train_end(const RunInfo& /*run*/, const Logs& /*logs*/) override { note("on_train_end"); }
  void on_epoch_begin(const RunInfo& /*run*/) override { note("on_epoch_begin"); }
  void on_epoch_end(const RunInfo& /*run*/, Logs& logs) override {
    note("on_epoch_end " + std::to_string(logs.size()));
    logs.set(name_, 1.0);
  }
  void on_batch_begin(const RunInfo& /*run*/) override { note("on_batch_begin"); }
  void on_batch_end(const RunInfo& /*run*/, const BatchLogs& logs) override {
    note("on_batch_end " + std::to_string(static_cast<int>(logs.loss())));
  }
  void on_preemption(const RunInfo& /*run*/) override { note("on_preemption"); }
  void on_test_begin(const RunInfo& /*run*/) override { note("on_test_begin"); }
  void on_test_end(const RunInfo& /*run*/, const Logs& logs) override {
    note("on_test_end " + std::to_string(logs.size()));
  }
  int turn() const override { return turn_; }

 private:
  void note(const std::string& what) { names_.push_back(name_ + " " + what); }

  Names& names_;
  std::string name_;
  int turn_;
};

TEST(Listeners, CallsCallbacksInTheirOrderAndAtEndsByTheirTurns) {
  Names names;
  Sequential model({Dense(1)});
  const RunInfo run{.model = model};
  Listeners listeners(kCallbacks);
  listeners.add(std::make_shared<Named>(names, "a", 1), run);
  listeners.add(std::make_shared<Named>(names, "b", 0), run);
  listeners.tell(Moment::kTrainBegin);
  listeners.tell(Moment::kRoundBegin);
  listeners.tell(Moment::kStepBegin);
  listeners.tell_step_end(BatchLogs([] { return Logs(); }, [] { return 7.0; }));
  Logs logs{{"loss", 1.0}};
  for (const Moment moment : {Moment::kStepsEnd, Moment::kSummary, Moment::kCheckpoint}) listeners.tell(moment, logs);
  listeners.tell(Moment::kEvaluationBegin);
  listeners.tell(Moment::kEvaluationEnd, logs);
  listeners.tell(Moment::kRoundEnd, logs);
  listeners.tell(Moment::kTrainEnd, logs);
  listeners.tell(Moment::kPreemption);
  EXPECT_THAT(
      names, ElementsAre("a on_train_begin", "b on_train_begin", "a on_epoch_begin", "b on_epoch_begin",
                         "a on_batch_begin", "b on_batch_begin", "b on_batch_end 7", "a on_batch_end 7",
                         "a on_test_begin", "b on_test_begin", "a on_test_end 1", "b on_test_end 1", "b on_epoch_end 1",
                         "a on_epoch_end 2", "b on_train_end", "a on_train_end", "b on_preemption", "a on_preemption"));
  EXPECT_EQ(logs.size(), 3U);
}

// A trainer that counts steps.
class Steps final : public Trainer, public Evaluator {
 public:
  int64_t global_step() const override { return step; }
  Logs train(int64_t steps) override {
    step += steps;
    return {{"loss", static_cast<double>(step)}};
  }
  CheckpointData save() override { return {.values = {{"step", std::to_string(step)}}}; }
  void restore(const CheckpointData& data, bool /*keep_input*/) override { step = std::stoll(data.values.at("step")); }
  Logs evaluate(int64_t /*steps*/) override { return {{"accuracy", static_cast<double>(step)}}; }
  int64_t load(const std::filesystem::path& /*checkpoint*/) override { return step; }

  int64_t step = 0;
};

class ControllerRounds : public ::testing::Test {
 protected:
  Action noted(const std::string& name) {
    return [this, name](const ActionInfo& info) { names_.push_back(c10::str(name, " ", info.step)); };
  }
  ControllerOptions options() {
    return {.trainer = steps_,
            .evaluator = steps_,
            .train_actions = {noted("train")},
            .eval_actions = {noted("eval")},
            .summary_actions = {noted("summary")},
            .summary_interval = 4,
            .steps_per_loop = 10,
            .checkpoint_dir = folder_ / "run",
            .checkpoint_interval = 2};
  }

  testing::TemporaryFolder folder_;
  Names names_;
  std::shared_ptr<Steps> steps_ = std::make_shared<Steps>();
};

TEST_F(ControllerRounds, TellActionsInTheOrderOfTheMoments) {
  Controller(options()).train_and_evaluate(4, kAllSteps, /*eval_interval=*/3);
  EXPECT_THAT(names_, ElementsAre("train 2", "train 3", "eval 3", "train 4", "summary 4", "eval 4"));
}

TEST_F(ControllerRounds, EvaluateAgainWhatATrainingThatWentBackPassesAgain) {
  ControllerOptions with_fault = options();
  with_fault.summary_actions.clear();
  bool failed = false;
  with_fault.train_actions.emplace_back([&](const ActionInfo& info) {
    if (info.step != 4 || std::exchange(failed, true)) return;
    EXPECT_TRUE(info.controller.restore_checkpoint(/*keep_input=*/true));
  });
  Controller(with_fault).train_and_evaluate(4, kAllSteps, /*eval_interval=*/3);
  EXPECT_THAT(names_, ElementsAre("train 2", "train 3", "eval 3", "train 4", "train 3", "eval 3", "train 4", "eval 4"));
}

TEST_F(ControllerRounds, EvaluateTheEndToWhichAnActionWentBack) {
  ControllerOptions back = options();
  back.summary_actions.clear();
  back.train_actions.emplace_back([](const ActionInfo& info) {
    if (info.step != 4) return;
    info.controller.restore_checkpoint();
    info.controller.stop();
  });
  const Logs logs = Controller(back).train_and_evaluate(8);
  EXPECT_THAT(names_, ElementsAre("train 2", "train 4", "eval 2"));
  EXPECT_EQ(logs["accuracy"], 2.0);
}

}  // namespace
}  // namespace cohort::rounds_test
