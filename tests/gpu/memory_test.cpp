// The memory of cards: who holds it when there is no more, what leaves it for a checkpoint, and its figures in logs.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/cohort.h"
#include "device/leaving.h"
#include "tests/gpu/cards.h"
#include "tests/gpu/cuda_waits.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::memory_test {
namespace {

using namespace gpu;

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Memory, WhoHoldsItIsSaidWhenThereIsNoMore) {
  COHORT_NEEDS_PLACES(2);
  if (!stands_in()) GTEST_SKIP() << "a real card has too much";
  const Strategy strategy = MirroredStrategy({.devices = on_cards(2)});
  auto net = strategy.mirror([] { return torch::nn::Linear(512, 512); });
  auto optimizer = strategy.optimizer(net, Adam({.learning_rate = 0.1}));
  const DistributedDataset data =
      strategy.distribute(Dataset::from_tensor_slices(torch::randn({64, 512}), torch::randn({64, 512})).batch(32));
  const auto step = [&](int64_t repeats) {
    for (const GlobalBatch& batch : data) {
      strategy.run(
          [&](Replica& replica, const Example& share) {
            const torch::Tensor x = share.x.repeat({repeats, 1});
            const torch::Tensor y = net[replica]->forward(x).narrow(0, 0, share.size());
            optimizer[replica].minimize(replica.global_mean((y - share.y).square().mean(1)));
          },
          batch);
    }
  };
  step(1);
  const FewBytesMore few(int64_t{16} << 20);
  const std::string said = testing::error_of<FailedPrecondition>([&] { step(1024); });
  EXPECT_THAT(said, AllOf(HasSubstr("[device] /GPU:"), HasSubstr("has no memory left: [libtorch]"),
                          HasSubstr("parameters 1.0 MiB"), HasSubstr("gradients 1.0 MiB"),
                          HasSubstr("the optimizer's slots 2.0 MiB"), HasSubstr("batches ahead 192.0 KiB"),
                          HasSubstr("activations and temporary values, at most"), HasSubstr("what would help: ")))
      << said;
  step(1);  // the strategy goes on
}

// What a checkpoint saves is what was there when it was asked for, although the step goes on at once.
TEST(Memory, WhatLeavesIsAsItWas) {
  COHORT_NEEDS_CARDS(1);
  const torch::Device card = find_logical_device(on_cards(1)[0]).torch_device;
  std::vector<torch::Tensor> tensors;
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kLong, torch::kBool}) {
    tensors.push_back(torch::arange(12).view({3, 4}).to(dtype).to(card));
  }
  tensors.push_back(
      torch::arange(24, torch::kFloat).view({2, 3, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast).to(card));
  tensors.push_back(torch::zeros({0, 3}, card));
  tensors.push_back(torch::full({}, 5.0));                                           // of the host
  tensors.push_back(torch::arange((int64_t{9} << 20) + 3, torch::kFloat).to(card));  // more than one piece
  std::vector<torch::Tensor> wanted;
  for (const torch::Tensor& tensor : tensors) wanted.push_back(tensor.cpu().clone());
  refuse_cuda_waits(true);
  const int64_t before = synchronisations();
  const auto leaving = leave(tensors);
  for (torch::Tensor& tensor : tensors) tensor.zero_();
  EXPECT_EQ(synchronisations(), before);
  refuse_cuda_waits(false);
  std::vector<torch::Tensor> here;
  std::jthread([&] { here = leaving->take(); }).join();
  ASSERT_EQ(here.size(), wanted.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    EXPECT_TRUE(here[i].is_cpu() && here[i].is_contiguous());
    EXPECT_TRUE(torch::equal(here[i], wanted[i])) << i;
  }
}

// Replicas compute on the default stream, whatever the thread that saves has made current: what is saved is behind
// their work, and before what comes next.
TEST(Memory, WhatLeavesIsBetweenTheStepsOnWhicheverStream) {
  COHORT_NEEDS_CARDS(1);
  if (!stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for";
  const torch::Device card = find_logical_device(on_cards(1)[0]).torch_device;
  const torch::Tensor x = torch::ones({3}, card);
  const c10::Stream own = c10::impl::VirtualGuardImpl(card.type()).getStreamFromGlobalPool(card);
  using Waits = std::vector<std::pair<int64_t, int64_t>>;
  {
    const c10::StreamGuard guard(own);
    const StreamWaits waits;
    const auto leaving = leave({x});
    EXPECT_EQ(waits.list(), (Waits{{own.id(), 0}, {0, own.id()}}));
  }
  const StreamWaits waits;
  const auto leaving = leave({x});
  EXPECT_EQ(waits.list(), Waits());
}

TEST(Memory, WithoutRoomForACopyTheStepWaits) {
  COHORT_NEEDS_CARDS(1);
  if (!stands_in()) GTEST_SKIP() << "a real card has too much";
  const torch::Device card = find_logical_device(on_cards(1)[0]).torch_device;
  torch::Tensor large = torch::ones({1 << 20}, card);
  const FewBytesMore few(1 << 20);
  const auto leaving = leave({large, large});
  large.zero_();
  for (const torch::Tensor& each : leaving->take()) EXPECT_EQ(each.sum().item<float>(), 1 << 20);
}

TEST(Memory, ItsFiguresAreInTheLogs) {
  COHORT_NEEDS_CARDS(1);
  const testing::TemporaryFolder folder;
  const Strategy strategy = OneDeviceStrategy(on_cards(1)[0]);
  const auto scope = strategy.scope();
  Sequential model{Dense(4)};
  model.compile({.optimizer = SGD({}), .loss = MeanSquaredError()});
  const Dataset data = Dataset::from_tensor_slices(torch::randn({8, 4}), torch::randn({8, 4})).batch(4);
  model.fit(data, {.callbacks = {MetricsWriter(folder / "metrics.jsonl")}, .verbose = Verbose::kSilent});
  std::ifstream lines(folder / "metrics.jsonl");
  const auto line = nlohmann::json::parse(lines);
  EXPECT_GT(line["memory_in_use"].get<double>(), 0.0);
  EXPECT_GE(line["memory_peak"].get<double>(), line["memory_in_use"].get<double>());
  EXPECT_GE(line["memory_reserved"].get<double>(), line["memory_in_use"].get<double>());
}

}  // namespace
}  // namespace cohort::memory_test
