// What callbacks ask of a training that they save and resume; the training itself is a stand-in.
#include "cohort/train/training_run.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/train/layers.h"
#include "cohort/train/model.h"
#include "cohort/train/more_callbacks.h"
#include "tests/support/files.h"

namespace cohort::training_run_test {
namespace {

using testing::TemporaryFolder;

// A training of one worker, whose state is a number.
class Counter final : public TrainingRun {
 public:
  CheckpointData save() override {
    return {.tensors = {{"model", {{"count", torch::full({1}, count)}}}}, .values = {{"step", std::to_string(count)}}};
  }
  CheckpointData save_shards() override {
    ADD_FAILURE() << "the backup is not sharded";
    return {};
  }
  bool resume(const std::function<std::optional<CheckpointData>()>& load) override { return resume_together(load); }
  bool resume_together(const std::function<std::optional<CheckpointData>()>& load) override {
    const std::optional<CheckpointData> data = load();
    if (!data) return false;
    count = std::stoi(data->values.at("step"));
    EXPECT_EQ(data->tensors.at("model").at(0).second.item<int64_t>(), count);
    return true;
  }
  void end_when(std::function<bool()> told) override { is_told = std::move(told); }
  bool as_chief_says(bool mine) const override { return mine; }
  void on_chief(const std::string& /*what*/, const std::function<void()>& fn) const override { fn(); }

  int64_t count = 0;
  std::function<bool()> is_told;
};

// A training up to the moment at which a callback would see it.
struct Training {
  explicit Training(int64_t count) : model({Dense(1)}), run{.model = model, .training = &counter} {
    counter.count = count;
    run.step = count;
  }
  Sequential model;
  Counter counter;
  RunInfo run;
};

TEST(BackupAndRestore, GivesTheNextTrainingWhatTheLastOneSaved) {
  const TemporaryFolder folder;
  const auto backup = [&] { return BackupAndRestore({.directory = folder.path(), .delete_checkpoint = false}); };
  Logs logs;
  {
    Training first(3);
    const CallbackPtr callback = backup();
    callback->on_train_begin(first.run);
    EXPECT_EQ(first.counter.count, 3) << "there is nothing to resume";
    callback->on_epoch_end(first.run, logs);
    callback->on_train_end(first.run, logs);
  }
  Training second(0);
  const CallbackPtr callback = backup();
  callback->on_train_begin(second.run);
  EXPECT_EQ(second.counter.count, 3);
  callback->on_train_end(second.run, logs);
}

TEST(BackupAndRestore, AsksItsFunctionForPreemptionsAndSavesThere) {
  const TemporaryFolder folder;
  bool preempted = false;
  const auto backup = [&] {
    return BackupAndRestore(
        {.directory = folder.path(), .delete_checkpoint = false, .preempted = [&] { return preempted; }});
  };
  {
    Training first(5);
    const CallbackPtr callback = backup();
    callback->on_train_begin(first.run);
    ASSERT_TRUE(first.counter.is_told);
    EXPECT_FALSE(first.counter.is_told());
    preempted = true;
    EXPECT_TRUE(first.counter.is_told());
    callback->on_preemption(first.run);
  }
  Training second(0);
  backup()->on_train_begin(second.run);
  EXPECT_EQ(second.counter.count, 5);
}

}  // namespace
}  // namespace cohort::training_run_test
