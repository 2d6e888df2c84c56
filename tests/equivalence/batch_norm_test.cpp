// Synchronised batch norm: its statistics, and the gradients through them, are those of the global batch.
#include <torch/torch.h>

#include "cohort/cohort.h"
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

// The backward pass of a synchronized batch norm waits for all replicas. A replica without examples must reach it, too.
TEST(BatchNormEquivalence, AReplicaWithoutExamplesGoesThroughEveryLayerAbove) {
  const auto loss_of = [](const Strategy& strategy, const Layer& above, const Shape& input) {
    const auto scope = strategy.scope();
    torch::manual_seed(3);
    Sequential model({BatchNormalization({.synchronized = true}), above, Flatten(), Dense(2)},
                     {.dtype = torch::kDouble});
    model.build(input, torch::kDouble);
    model.compile(
        {.optimizer = SGD({.learning_rate = 0.1}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
    Shape rows = input;
    rows.insert(rows.begin(), 5);
    const auto data = Dataset::from_tensor_slices(torch::randn(rows, torch::kDouble), torch::arange(5) % 2).batch(4);
    return model.fit(data, {.epochs = 3, .verbose = Verbose::kSilent})["loss"].back();
  };
  const std::vector<std::pair<Layer, Shape>> layers = {
      {GroupNormalization({.groups = 2}), {4, 3, 3}},
      {Conv2DTranspose({.filters = 2, .kernel_size = 3}), {4, 3, 3}},
      {UpSampling2D(), {4, 3, 3}},
      {Conv1D({.filters = 2, .kernel_size = 2}), {4, 3}},
      {LSTM(2), {4, 3}},
      {GRU(2), {4, 3}},
  };
  for (const auto& [above, input] : layers) {
    const double alone = loss_of(OneDeviceStrategy("/CPU:0"), above, input);
    const double three = loss_of(MirroredStrategy({.devices = cpu_devices(3)}), above, input);
    EXPECT_NEAR(alone, three, 1e-9) << above.kind().type();
  }
}

}  // namespace
}  // namespace cohort::equivalence::batch_norm_test
