// The writing of checkpoints by several workers: what is kept, what is left when one of them fails.
#include "train/loop/worker_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/access.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::worker_checkpoints_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::names_in;
using testing::TemporaryFolder;
using testing::with_workers;

// Each worker has a row of the tensor. Groups with a "/" in their name cannot be written.
CheckpointData rows(int rank, double value, const std::string& group = "model") {
  TensorPiece piece = whole_piece("w", torch::full({1, 3}, value + rank));
  piece.whole.shape = {2, 3};
  piece.runs = {.offset = 3 * rank, .length = 3};
  auto shards = std::make_shared<CheckpointShards>();
  shards->pieces[group] = {piece};
  return {.bytes = {{"worker-" + std::to_string(rank), "own"}},
          .values = {{"value", std::to_string(value)}},
          .shards = shards};
}

torch::Tensor wanted(double value) {
  return torch::tensor({value, value + 1.0}, torch::kFloat).unsqueeze(1).expand({2, 3});
}

std::vector<std::string> checkpoints_in(const std::filesystem::path& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("ckpt-"); });
  return names;
}

TEST(WorkerCheckpoints, AreKeptFollowedAndClearedAsOthers) {
  for (const bool asynchronous : {true, false}) {
    const TemporaryFolder folder;
    with_workers({}, [&](const Strategy& strategy) {
      const StrategyCore& core = *Access::core(strategy);
      const int rank = core.worker_rank();
      WorkerCheckpoints checkpoints(core, folder.path(), {.max_to_keep = 2, .asynchronous = asynchronous},
                                    /*sharded=*/true);
      EXPECT_FALSE(checkpoints.restore_latest({"model"}));
      for (int step = 1; step <= 3; ++step) checkpoints.save(step, rows(rank, step));
      checkpoints.finish();
      EXPECT_THAT(checkpoints_in(folder.path()), ElementsAre("ckpt-2", "ckpt-3"));
      const auto saved = checkpoints.restore_latest({"model"});
      ASSERT_TRUE(saved);
      EXPECT_EQ(saved->step, 3);
      EXPECT_EQ(saved->data.values.contains("value"), rank == 0);
      const auto model = saved->data.shards->reader->group("model");
      EXPECT_TRUE(torch::equal(model->read_whole("w"), wanted(3.0)));
      EXPECT_EQ(saved->data.shards->reader->bytes("worker-1"), "own");
      if (rank == 0) {
        EXPECT_FALSE(finished_run(folder.path()).empty());
        CheckpointFollower follower(folder.path());
        EXPECT_EQ(follower.next().value().filename(), "ckpt-3");
        EXPECT_FALSE(follower.next());
      }
      core.any_worker("both have looked", true);
      checkpoints.clear();
      EXPECT_FALSE(std::filesystem::exists(folder.path()) && !checkpoints_in(folder.path()).empty());
    });
  }
}

// The error of one worker is that of all, by its name; nothing half is left, and the next checkpoint is whole.
TEST(WorkerCheckpoints, OfAWorkerThatCannotWriteAreNotThere) {
  const TemporaryFolder folder;
  with_workers({}, [&](const Strategy& strategy) {
    const StrategyCore& core = *Access::core(strategy);
    const int rank = core.worker_rank();
    WorkerCheckpoints checkpoints(core, folder.path(), {}, /*sharded=*/true);
    checkpoints.save(1, rows(rank, 1));
    checkpoints.save(2, rows(rank, 2, rank == 1 ? "no/name" : "model"));
    const auto wait = [&] { checkpoints.wait(); };
    const std::string said = rank == 0 ? error_of<Unavailable>(wait) : error_of<InvalidArgument>(wait);
    EXPECT_THAT(said, HasSubstr("\"no/name\" cannot name a part of a checkpoint"));
    if (rank == 0) {
      EXPECT_THAT(said, HasSubstr("failed on worker 1"));
    }
    EXPECT_EQ(checkpoints.restore_latest({"model"}).value().step, 1);
    checkpoints.save(3, rows(rank, 3));
    checkpoints.wait();
    EXPECT_EQ(checkpoints.restore_latest({"model"}).value().step, 3);
  });
  EXPECT_THAT(checkpoints_in(folder.path()), ElementsAre("ckpt-1", "ckpt-3"));
}

// A damaged shard is found by one worker, and all take the checkpoint before.
TEST(WorkerCheckpoints, ThatAreDamagedAreLeftOutByAll) {
  const TemporaryFolder folder;
  with_workers({.workers = 3}, [&](const Strategy& strategy) {
    const StrategyCore& core = *Access::core(strategy);
    const int rank = core.worker_rank();
    WorkerCheckpoints checkpoints(core, folder.path(), {}, /*sharded=*/true);
    const auto data = [&](double value) {
      return rank < 2 ? rows(rank, value) : CheckpointData{.shards = std::make_shared<CheckpointShards>()};
    };
    checkpoints.save(1, data(1));
    checkpoints.save(2, data(2));
    checkpoints.wait();
    if (rank == 0) {
      const auto shard = folder.path() / "ckpt-2" / "model.shard-1-of-3.safetensors";
      std::string bytes = testing::read_file(shard);
      bytes.back() = static_cast<char>(bytes.back() + 1);
      testing::write_file(shard, bytes);
    }
    core.any_worker("it is damaged", true);
    const auto saved = checkpoints.restore_latest({"model"});
    EXPECT_EQ(saved.value().step, 1);
    EXPECT_TRUE(torch::equal(saved->data.shards->reader->group("model")->read_whole("w"), wanted(1.0)));
  });
}

}  // namespace
}  // namespace cohort::worker_checkpoints_test
