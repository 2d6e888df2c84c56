// Two optimizers in one step on devices of XLA. The steps are those that LibTorch takes on the CPU.
#include "cohort/cluster/xla_strategy.h"
#include "tests/equivalence/gan_runs.h"
#include "tests/equivalence/runs.h"
#include "tests/support/xla.h"

namespace cohort::equivalence::xla_optimizers_test {
namespace {

TEST(XlaSeveralOptimizers, TrainAsLibTorchDoes) {
  if (cohort::testing::cpu_plugin() == nullptr) GTEST_SKIP() << cohort::testing::kNoCpuPlugin;
  for (const int devices : {1, 2}) {
    const XlaStrategy strategy({.plugin = "cpu", .num_devices = devices, .plugin_options = "cpu_device_count=2"});
    for (const GanKind& kind : gan_kinds()) {
      const std::vector<torch::Tensor> ours = gan_under(strategy, kind.options);
      const std::vector<torch::Tensor> wanted = gan_by_libtorch(kind.options);
      const std::string what = c10::str(kind.name, " on ", devices, " devices");
      EXPECT_LT(distance(ours[0], wanted[0]), 1e-9) << "the generator's weights: " << what;
      EXPECT_LT(distance(ours[1], wanted[1]), 1e-9) << "the critic's weights: " << what;
    }
  }
}

}  // namespace
}  // namespace cohort::equivalence::xla_optimizers_test
