// Stages that have nothing to do, and the loops of those that have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "base/parallel.h"
#include "cohort/optimizer.h"
#include "cohort/parallel/pipeline_strategy.h"

namespace cohort::help_test {
namespace {

using ::testing::ElementsAre;
using namespace std::chrono_literals;

// Divides a loop of two among the threads that stand by; returns whether two of them were in it at once.
bool is_divided() {
  std::latch both(2);
  std::atomic<bool> met = true;
  const bool divides = LoopTeam::divides(2, 1, [&](int64_t, int64_t) {
    both.count_down();
    const auto end = std::chrono::steady_clock::now() + 1min;
    while (!both.try_wait() && met) {
      if (std::chrono::steady_clock::now() > end) met = false;
      std::this_thread::sleep_for(1ms);
    }
  });
  return divides && met;
}

// The identity, whose backward pass tells whether a loop in it was divided.
struct AsksInBackward : torch::autograd::Function<AsksInBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, int64_t answer) {
    context->saved_data["answer"] = answer;
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    *reinterpret_cast<bool*>(context->saved_data["answer"].toInt()) = is_divided();
    return {gradients[0], torch::Tensor()};
  }
};

TEST(PipelineHelp, AStageWithoutWorkHelpsTheOneThatHasSome) {
  const PipelineStrategy strategy({.devices = cpu_devices(2), .schedule = Schedule1F1B{.microbatches = 3}});
  const auto model =
      strategy.mirror([] { return torch::nn::Sequential(torch::nn::Linear(1, 4), torch::nn::Linear(4, 1)); });
  const MirroredOptimizer sgd = strategy.optimizer(model, SGD());
  for (int i = 0; i < 2; ++i) {
    std::array<bool, 3> forward{}, backward{};
    strategy.run(
        [&](Replica& replica, const Example& part) {
          const auto microbatch = static_cast<std::size_t>(part.x[0].item<float>()) / 2;
          forward[microbatch] = is_divided();
          const auto answer = reinterpret_cast<int64_t>(&backward[microbatch]);
          const torch::Tensor first = model[replica]->ptr(0)->as<torch::nn::Linear>()->forward(part.x);
          const torch::Tensor h = next_stage(AsksInBackward::apply(first, answer));
          sgd[replica].minimize(replica.global_mean(model[replica]->ptr(1)->as<torch::nn::Linear>()->forward(h)));
        },
        PerReplica<Example>({Example{.x = torch::arange(6).to(torch::kFloat).view({6, 1})}}));
    EXPECT_THAT(forward, ElementsAre(true, false, false)) << "the second stage waits for the first microbatch";
    EXPECT_THAT(backward, ElementsAre(false, false, true)) << "it has done with the last one";
  }
}

}  // namespace
}  // namespace cohort::help_test
