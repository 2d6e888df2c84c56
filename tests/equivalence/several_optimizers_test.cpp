// Two optimizers in one step, as GANs have them: the loss of the generator flows through the critic. Every strategy
// takes the steps that LibTorch takes with zero_grad() before each backward().
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "tests/equivalence/gan_runs.h"
#include "tests/equivalence/runs.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"

namespace cohort::equivalence::several_optimizers_test {
namespace {

void expect_libtorchs(const std::vector<torch::Tensor>& ours, const GanKind& kind) {
  const std::vector<torch::Tensor> wanted = gan_by_libtorch(kind.options);
  EXPECT_LT(distance(ours[0], wanted[0]), 1e-9) << "the generator's weights: " << kind.name;
  EXPECT_LT(distance(ours[1], wanted[1]), 1e-9) << "the critic's weights: " << kind.name;
}

class SeveralOptimizers : public ::testing::TestWithParam<Case> {};

TEST_P(SeveralOptimizers, TrainAsLibTorchDoes) {
  for (const GanKind& kind : gan_kinds()) expect_libtorchs(gan_under(GetParam().make(), kind.options), kind);
}

INSTANTIATE_TEST_SUITE_P(All, SeveralOptimizers, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(SeveralOptimizersOfWorkers, TrainAsLibTorchDoes) {
  for (const bool overlap : {false, true}) {
    for (const int stage : {0, 1, 2, 3}) {
      if (overlap && stage == 1) continue;  // gradients leave after backward
      testing::WorkersOptions workers{.replicas = stage == 0 ? 2 : 1};
      workers.sharding.stage = stage;
      workers.communication.overlap = overlap;
      // Several messages.
      if (stage == 3) {
        workers.sharding.min_unit_bytes = 0;
      } else {
        workers.communication.bytes_per_pack = 64;
      }
      for (const GanKind& kind : gan_kinds()) {
        testing::with_workers(workers, [&](const MultiWorkerMirroredStrategy& strategy) {
          expect_libtorchs(gan_under(strategy, kind.options), kind);
        });
      }
    }
  }
}

// A step of a pipeline has one optimizer, and its loss depends on that one's parameters alone: a critic is frozen for
// it.
TEST(SeveralOptimizersOfAPipeline, TakeTurnsInRunsOfTheirOwn) {
  const PipelineStrategy strategy({.devices = cpu_devices(1), .schedule = Schedule1F1B{.microbatches = 2}});
  EXPECT_THAT(testing::error_of<Unimplemented>([&] { gan_under(strategy, {}); }),
              ::testing::HasSubstr("one loss and one optimizer"));
  const auto generator = strategy.mirror(gan_generator);
  const auto critic = strategy.mirror(gan_critic);
  const auto of_generator = strategy.optimizer(generator, SGD({.learning_rate = kGeneratorRate}));
  const auto of_critic = strategy.optimizer(critic, SGD({.learning_rate = kCriticRate}));
  const Example batch = gan_batch({}, 0);
  const auto step = [&] {
    strategy.run(
        [&](Replica& replica, const Example& share) {
          const torch::Tensor scores = critic[replica]->forward(generator[replica]->forward(share.y)).flatten();
          of_generator[replica].minimize(replica.global_mean(-scores));
        },
        split(batch, 1));
  };
  EXPECT_THAT(testing::error_of<InvalidArgument>(step),
              ::testing::HasSubstr("neither one of the optimizer's parameters nor given to next_stage()"));
  for (torch::Tensor& each : critic[0]->parameters()) each.set_requires_grad(false);
  step();
  torch::nn::Sequential alone = gan_generator();
  torch::optim::SGD sgd(alone->parameters(), torch::optim::SGDOptions(kGeneratorRate));
  (-gan_critic()->forward(alone->forward(batch.y)).mean()).backward();
  sgd.step();
  EXPECT_LT(distance(flat_values({generator[0]->parameters()})[0], flat_values({alone->parameters()})[0]), 1e-12);
}

}  // namespace
}  // namespace cohort::equivalence::several_optimizers_test
