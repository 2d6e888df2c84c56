#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "cohort/checkpoint.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::follower_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;

const CheckpointFollowerOptions kPatient{.poll = std::chrono::milliseconds(5), .timeout = std::chrono::seconds(30)};
const CheckpointFollowerOptions kHasty{.poll = std::chrono::milliseconds(5), .timeout = std::chrono::milliseconds(100)};

CheckpointData data() {
  return {.tensors = {{"model", {{"w", torch::ones({2})}}}}};
}

TEST(CheckpointFollower, GivesTheNewestUntilTheEnd) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", {.max_to_keep = 2});
  CheckpointFollower follower(folder / "run", kPatient);
  manager.save(1, data());
  manager.wait();
  EXPECT_EQ(follower.next(), folder / "run" / "ckpt-1");
  for (const int64_t step : {2, 3, 10}) manager.save(step, data());
  manager.finish();
  EXPECT_TRUE(manager.finished());
  EXPECT_EQ(follower.next(), folder / "run" / "ckpt-10") << "those between were missed";
  EXPECT_EQ(follower.next(), std::nullopt);
  manager.save(11, data());
  EXPECT_FALSE(manager.finished());
  EXPECT_EQ(follower.next(), folder / "run" / "ckpt-11");
}

TEST(CheckpointFollower, WaitsForTheDirectoryAndGivesUpAtTheDeadline) {
  const TemporaryFolder folder;
  CheckpointFollower hasty(folder / "run", kHasty);
  expect_error<DeadlineExceeded>([&] { hasty.next(); }, "for a new checkpoint in");
  std::jthread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CheckpointManager(folder / "run").save(7, data());
  });
  EXPECT_EQ(CheckpointFollower(folder / "run", kPatient).next(), folder / "run" / "ckpt-7");
}

TEST(CheckpointFollower, SkipsAFinishedRun) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run");
  manager.save(100, data());
  manager.finish();
  EXPECT_EQ(CheckpointFollower(folder / "run", kHasty).next(), folder / "run" / "ckpt-100");
  CheckpointFollowerOptions options = kHasty;
  options.skip_run = finished_run(folder / "run");
  EXPECT_NE(options.skip_run, "");
  CheckpointFollower follower(folder / "run", options);
  expect_error<DeadlineExceeded>([&] { follower.next(); }, "for a new checkpoint");
  manager.clear();
  CheckpointManager next_run(folder / "run");
  EXPECT_EQ(finished_run(folder / "run"), "");
  next_run.save(100, data());  // as far as the one before
  next_run.finish();
  EXPECT_NE(finished_run(folder / "run"), options.skip_run);
  EXPECT_EQ(follower.next(), folder / "run" / "ckpt-100");
  EXPECT_EQ(follower.next(), std::nullopt);
}

}  // namespace
}  // namespace cohort::follower_test
