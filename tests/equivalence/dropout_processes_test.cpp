// LibTorch's own dropout on workers that are processes, which `cohort launch` starts.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cluster/multi_worker_strategy.h"

namespace cohort::equivalence::dropout_processes_test {
namespace {

// All processes have the same seed, and each drops other values.
TEST(DropoutInProcesses, DropsOtherValuesOnEachWorker) {
  const MultiWorkerMirroredStrategy strategy({.devices = cpu_devices(1)});
  ASSERT_EQ(strategy.num_workers(), 2) << "cohort launch --nproc=2 starts this test";
  const auto masks = [&](int64_t rows) {
    return strategy.run([rows](Replica&) { return torch::nn::Dropout(0.5)(torch::ones({rows, 64})); });
  };
  torch::manual_seed(1);
  const auto first = masks(1);
  const torch::Tensor of_both = strategy.gather(first, 0);
  EXPECT_FALSE(torch::equal(of_both[0], of_both[1]));
  EXPECT_FALSE(torch::equal(masks(1)[0], first[0])) << "another step";
  // Shares differ; what is drawn outside of run() does not.
  (void)masks(strategy.worker_rank());
  const torch::Tensor outside = strategy.gather(PerReplica<torch::Tensor>({torch::rand({1, 64})}), 0);
  EXPECT_TRUE(torch::equal(outside[0], outside[1]));
  torch::manual_seed(1);
  EXPECT_TRUE(torch::equal(masks(1)[0], first[0])) << "the same seed";
}

}  // namespace
}  // namespace cohort::equivalence::dropout_processes_test
