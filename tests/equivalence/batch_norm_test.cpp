// Synchronised batch norm: its statistics, and the gradients through them, are those of the global batch.
#include <torch/torch.h>

#include "cohort/train/layers.h"
#include "tests/equivalence/runs.h"

namespace cohort::equivalence::batch_norm_test {
namespace {

// Two normalisations, so that gradients pass through the statistics of one on their way to the other.
struct NormalisedNetImpl : torch::nn::Module {
  explicit NormalisedNetImpl(bool synchronized) {
    const auto norm = [&](const char* name, int64_t width) {
      return register_module(name, BatchNormalization({.momentum = 0.9, .synchronized = synchronized})
                                       .kind()
                                       .build({.name = name, .input = {width}, .dtype = torch::kFloat}));
    };
    hidden = register_module("hidden", torch::nn::Linear(kFeatures, 31));
    first = norm("first", 31);
    inner = register_module("inner", torch::nn::Linear(31, 17));
    second = norm("second", 17);
    head = register_module("head", torch::nn::Linear(17, kClasses));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = torch::relu(first->forward(hidden->forward(x)));
    return head->forward(torch::tanh(second->forward(inner->forward(y))));
  }
  torch::nn::Linear hidden{nullptr}, inner{nullptr}, head{nullptr};
  std::shared_ptr<LayerModule> first, second;
};
TORCH_MODULE(NormalisedNet);

torch::Tensor weights_after(const Strategy& strategy, const Optimizer& rule, const RunOptions& run = {}) {
  return weights_after(strategy, rule, run, [] { return NormalisedNet(true); });
}

class BatchNormEquivalence : public ::testing::TestWithParam<Case> {};

TEST_P(BatchNormEquivalence, AdamAndMomentumInFloat64) {
  for (const Optimizer& rule : {Adam({.learning_rate = 0.01}), SGD({.learning_rate = 0.05, .momentum = 0.9})}) {
    const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule);
    EXPECT_LT(distance(alone, weights_after(GetParam().make(), rule)), 1e-9) << rule.name();
  }
}

TEST_P(BatchNormEquivalence, MomentumInFloat32) {
  const auto rule = SGD({.learning_rate = 0.01, .momentum = 0.9});
  const RunOptions run{.dtype = torch::kFloat};
  const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule, run);
  EXPECT_LT(distance(alone, weights_after(GetParam().make(), rule, run)), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, BatchNormEquivalence, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(BatchNormEquivalence, WouldNoticeStatisticsOfTheShare) {
  const auto rule = SGD({.learning_rate = 0.05});
  const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule);
  const auto own =
      copies_after(MirroredStrategy({.devices = cpu_devices(2)}), rule, {}, [] { return NormalisedNet(false); });
  EXPECT_GT(distance(alone, own[0]), 1e-3);
}

}  // namespace
}  // namespace cohort::equivalence::batch_norm_test
