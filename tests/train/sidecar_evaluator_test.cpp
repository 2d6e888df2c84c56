#include "cohort/train/sidecar_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::sidecar_evaluator_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;

Dataset batches() {
  const torch::Tensor x = torch::sin(torch::arange(60 * 4, torch::kFloat)).view({60, 4});
  return Dataset::from_tensor_slices(x, (x.sum(1) > 0).to(torch::kLong)).batch(12);
}

Sequential model(int64_t units = 2) {
  Sequential made{Dense(8, Activation::kRelu), BatchNormalization(), Dense(units)};
  made.compile({.optimizer = Adam(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  return made;
}

SidecarEvaluatorOptions following(const std::filesystem::path& folder, std::vector<double>* losses = nullptr,
                                  std::vector<int64_t>* steps = nullptr) {
  const auto note = LambdaCallback({.on_test_end = [=](const RunInfo& run, const Logs& logs) {
    if (losses != nullptr) losses->push_back(logs["loss"]);
    if (steps != nullptr) steps->push_back(run.step);
  }});
  return {.checkpoint_dir = folder,
          .follow = {.name = "backup", .poll = std::chrono::milliseconds(2), .timeout = std::chrono::seconds(20)},
          .evaluate = {.callbacks = {note}, .verbose = Verbose::kSilent}};
}

TEST(SidecarEvaluator, EvaluatesWhileAnotherTrains) {
  const TemporaryFolder folder;
  std::vector<double> losses;
  std::vector<int64_t> steps;
  int64_t done = 0;
  std::jthread evaluator(
      [&] { done = SidecarEvaluator(model(), batches(), following(folder / "run", &losses, &steps)).start(); });
  Sequential net = model();
  net.fit(batches(), {.epochs = 5,
                      .callbacks = {BackupAndRestore({.directory = folder / "run", .delete_checkpoint = false})},
                      .verbose = Verbose::kSilent});
  evaluator.join();
  ASSERT_GE(done, 1);
  EXPECT_EQ(static_cast<int64_t>(losses.size()), done);
  EXPECT_EQ(steps.back(), 25) << "the last one is not missed";
  EXPECT_DOUBLE_EQ(losses.back(), net.evaluate(batches(), {.verbose = Verbose::kSilent})["loss"]);
}

TEST(SidecarEvaluator, RefusesWhatItCannotUse) {
  expect_error<InvalidArgument>([&] { SidecarEvaluator(model(), batches(), {.checkpoint_dir = {}}); }, "is empty");
  expect_error<InvalidArgument>([&] { SidecarEvaluator(model(), batches().unbatch(), following("run")); },
                                "not batched");
}

TEST(SidecarEvaluator, LeavesOutDamagedOnesAndRefusesThoseOfAnotherModel) {
  const TemporaryFolder folder;
  model().fit(batches(), {.callbacks = {BackupAndRestore({.directory = folder / "run", .delete_checkpoint = false})},
                          .verbose = Verbose::kSilent});
  EXPECT_EQ(SidecarEvaluator(model(), batches(), following(folder / "run")).start(), 1);
  expect_error<InvalidArgument>([&] { SidecarEvaluator(model(3), batches(), following(folder / "run")).start(); },
                                "the module wants");
  std::filesystem::resize_file(folder / "run" / "backup-5" / "model.safetensors", 20);
  EXPECT_EQ(SidecarEvaluator(model(), batches(), following(folder / "run")).start(), 0);
}

}  // namespace
}  // namespace cohort::sidecar_evaluator_test
