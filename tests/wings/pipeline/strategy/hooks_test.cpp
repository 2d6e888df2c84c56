// Hooks of parameters in a pipeline: they see what they would see on one device that has the same microbatches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "tests/support/errors.h"

namespace cohort::hooks_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

PipelineStrategy two_stages(const PipelineScheduleOptions& schedule = Schedule1F1B{.microbatches = 3}) {
  return PipelineStrategy({.devices = cpu_devices(2), .schedule = schedule});
}

PerReplica<Example> batch_of(int64_t rows) {
  return PerReplica<Example>({Example{.x = torch::arange(rows).to(torch::kFloat).view({rows, 1})}});
}

torch::nn::Sequential net() {
  return torch::nn::Sequential(torch::nn::Linear(1, 4), torch::nn::Tanh(), std::make_shared<StageMark>(),
                               torch::nn::Linear(4, 1));
}

// A layer that two chunks use.
struct TwiceImpl : torch::nn::Module {
  TwiceImpl() { weight = register_parameter("weight", torch::full({1}, 2.0)); }
  torch::Tensor forward(const torch::Tensor& x) { return next_stage(x * weight) * weight; }
  torch::Tensor weight;
};
TORCH_MODULE(Twice);

// The weights of net() after a step of the mean over six examples, in three microbatches, one after the other.
std::vector<torch::Tensor> weights_after_microbatches(const std::function<void(const torch::Tensor&)>& prepare) {
  torch::manual_seed(3);
  torch::nn::Sequential alone = net();
  for (const torch::Tensor& parameter : alone->parameters()) prepare(parameter);
  const torch::Tensor x = batch_of(6)[0].x;
  for (int64_t i = 0; i < 3; ++i) (alone->forward(x.narrow(0, 2 * i, 2)).sum() / 6).backward();
  std::vector<torch::Tensor> after;
  for (const torch::Tensor& parameter : alone->parameters()) after.push_back(parameter.detach() - parameter.grad());
  return after;
}

TEST(PipelineHooks, SeeTheGradientOfEachMicrobatch) {
  for (const PipelineScheduleOptions& schedule : {PipelineScheduleOptions(Schedule1F1B{.microbatches = 3}),
                                                  PipelineScheduleOptions(ScheduleZeroBubbleH1{.microbatches = 3})}) {
    std::atomic<int> calls = 0;
    const auto prepare = [&](const torch::Tensor& parameter) {
      parameter.register_hook([&](const torch::Tensor& gradient) {
        ++calls;
        return gradient.clamp(-0.01, 0.02);
      });
    };
    const std::vector<torch::Tensor> wanted = weights_after_microbatches(prepare);
    EXPECT_EQ(calls.exchange(0), 3 * 4);
    const PipelineStrategy strategy = two_stages(schedule);
    const auto model = strategy.mirror([] {
      torch::manual_seed(3);
      return net();
    });
    for (const torch::Tensor& parameter : model[std::size_t{0}]->parameters()) prepare(parameter);
    const MirroredOptimizer sgd = strategy.optimizer(model, SGD({.learning_rate = 1.0}));
    strategy.run(
        [&](Replica& replica, const Example& part) {
          sgd[replica].minimize(replica.global_mean(model[replica]->forward(part.x)));
        },
        batch_of(6));
    EXPECT_EQ(calls, 3 * 4);
    const std::vector<torch::Tensor> got = model[std::size_t{0}]->parameters();
    for (std::size_t p = 0; p < wanted.size(); ++p) EXPECT_TRUE(torch::allclose(got[p], wanted[p], 1e-5, 1e-6)) << p;
  }
}

struct LeavesAsItIs final : torch::autograd::FunctionPostHook {
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    return outputs;
  }
};

TEST(PipelineHooks, ThatWouldSeeSomethingElseAreNamed) {
  const auto error_with = [](const auto& prepare) {
    const PipelineStrategy strategy = two_stages();
    const auto model = strategy.mirror([] { return Twice(); });
    [[maybe_unused]] const auto held = prepare(model[std::size_t{0}]->weight);
    const MirroredOptimizer sgd = strategy.optimizer(model, SGD());
    return error_of<Unimplemented>([&] {
      strategy.run(
          [&](Replica& replica, const Example& part) {
            sgd[replica].minimize(replica.global_mean(model[replica]->forward(part.x)));
          },
          batch_of(6));
    });
  };
  EXPECT_THAT(error_with([](const torch::Tensor& weight) {
                return weight.register_hook([](const torch::Tensor& gradient) { return gradient; });
              }),
              HasSubstr("shape [1] has hooks (register_hook) and is used in chunks 0 and 1 of the model"));
  EXPECT_THAT(error_with([](const torch::Tensor& weight) {
                auto accumulator = torch::autograd::impl::grad_accumulator(weight);
                accumulator->add_post_hook(std::make_unique<LeavesAsItIs>());
                return accumulator;
              }),
              HasSubstr("shape [1] has hooks at its gradient accumulator, which a pipeline does not call"));
}

}  // namespace
}  // namespace cohort::hooks_test
