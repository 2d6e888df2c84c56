// The bytes that a worker has at once when it saves and restores a sharded checkpoint, read from LibTorch's allocator.
// `cohort launch` starts two processes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <exception>
#include <functional>
#include <string>

#include "base/access.h"
#include "cohort/cluster/multi_worker_mesh.h"
#include "cohort/cohort.h"
#include "strategy/core.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/files.h"
#include "tests/support/memory_limit.h"

namespace cohort::checkpoint_memory_test {
namespace {

using testing::CountingAllocator;

constexpr int kLayers = 40;

// Returns a folder of the chief's, for all workers.
class CommonFolder {
 public:
  explicit CommonFolder(const Strategy& strategy)
      : core_(*Access::core(strategy)), path_(core_.text_from_chief(own_.path().string())) {}
  CommonFolder(const CommonFolder&) = delete;
  CommonFolder& operator=(const CommonFolder&) = delete;
  ~CommonFolder() { core_.any_worker("the end of the test", true); }
  const std::filesystem::path& path() const { return path_; }

 private:
  testing::TemporaryFolder own_;
  const StrategyCore& core_;
  std::filesystem::path path_;
};

// Returns a model that has made a step, so that all that it needs is there.
Sequential trained(int64_t width) {
  std::vector<Layer> layers;
  for (int i = 0; i < kLayers; ++i) layers.push_back(Dense(width, Activation::kTanh));
  Sequential model(layers);
  model.build({width});
  model.compile({.optimizer = Adam(), .loss = MeanSquaredError()});
  static_cast<void>(model.train_on_batch({.x = torch::ones({2, width}), .y = torch::zeros({2, width})}));
  return model;
}

// Returns the bytes of parameters and of Adam's slots.
double bytes_of(int64_t width) {
  return 12.0 * static_cast<double>(kLayers * (width * width + width));
}

// Returns the most bytes that doing it takes beside those that are there before.
double more_bytes(const std::function<void()>& fn) {
  const int64_t before = CountingAllocator::live();
  CountingAllocator::begin_peak();
  fn();
  return static_cast<double>(CountingAllocator::peak() - before);
}

// A worker copies its half of the states, or nothing where it waits for the write, and reads its own half piece by
// piece.
void expect_parts_alone(const Strategy& strategy) {
  constexpr int64_t kWidth = 128;
  ASSERT_EQ(Access::core(strategy)->num_workers(), 2) << "cohort launch --nproc=2 starts this test";
  CountingAllocator::install();
  const auto scope = strategy.scope();
  const CommonFolder folder(strategy);
  const double whole = bytes_of(kWidth);
  const Sequential model = trained(kWidth);
  for (const bool asynchronous : {true, false}) {
    Checkpoint checkpoint(strategy, folder.path() / (asynchronous ? "background" : "at_once"),
                          {.modules = {{"model", model.module()}}, .optimizers = {{"optimizer", model.optimizer()}}},
                          {.sharded = true, .manager = {.asynchronous = asynchronous}});
    const double saving = more_bytes([&] {
      checkpoint.save({.step = 1});
      checkpoint.wait();
    });
    EXPECT_LT(saving, (asynchronous ? 0.55 : 0.05) * whole);
    EXPECT_LT(more_bytes([&] { EXPECT_EQ(checkpoint.restore().value().step, 1); }), 0.05 * whole);
  }
  const double writing = more_bytes([&] { model.save_weights(folder.path() / "model.safetensors"); });
  EXPECT_LT(writing, 0.05 * whole) << "one file, a tensor of which is in memory at once";
  const double gathered = more_bytes([&] {
    static_cast<void>(model.module().state());
    static_cast<void>(model.optimizer().state());
  });
  EXPECT_GT(gathered, 0.6 * whole) << "what it takes otherwise";
}

MultiWorkerOptions stage_3() {
  return {.devices = {"/CPU:0"}, .sharding = {.stage = 3, .min_unit_bytes = 0}};
}

TEST(CheckpointMemoryInProcesses, HasPartsOfSharedParameters) {
  expect_parts_alone(MultiWorkerMirroredStrategy(stage_3()));
}

TEST(CheckpointMemoryInProcesses, HasPartsOfCutParameters) {
  expect_parts_alone(
      MultiWorkerMeshStrategy(DeviceMesh({2}, {"model"}, {"/job:worker/task:0/CPU:0", "/job:worker/task:1/CPU:0"}),
                              {.layout = {{"weight", {"model", ""}}, {"bias", {"model"}}}}));
}

// The process may have 11 bytes a parameter. It has 8 in stage 3, of two, and all parameters would be 4 more.
TEST(CheckpointMemoryInProcesses, IsEnoughForAModelThatNoWorkerMayHave) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory does not fit under the limit";
#endif
  constexpr int64_t kWide = 1024;
  const MultiWorkerMirroredStrategy strategy(stage_3());
  ASSERT_EQ(strategy.num_workers(), 2) << "cohort launch --nproc=2 starts this test";
  const auto scope = strategy.scope();
  const CommonFolder folder(strategy);
  const auto file = folder.path() / "model.safetensors";
  const auto save_and_restore = [&](int64_t width) {
    Sequential model = trained(width);
    Checkpoint checkpoint(strategy, folder.path() / std::to_string(width),
                          {.modules = {{"model", model.module()}}, .optimizers = {{"optimizer", model.optimizer()}}},
                          {.sharded = true, .manager = {.asynchronous = false}});
    checkpoint.save({.step = 1});
    EXPECT_EQ(checkpoint.restore().value().step, 1);
    model.save_weights(file);
    return model;
  };
  save_and_restore(8);  // its threads are there
  const auto parameters = static_cast<int64_t>(bytes_of(kWide) / 12);
  testing::limit_memory(11 * parameters);
  const Sequential model = save_and_restore(kWide);
  EXPECT_THROW(torch::empty({parameters}), std::exception) << "no worker may have all parameters";
}

}  // namespace
}  // namespace cohort::checkpoint_memory_test
