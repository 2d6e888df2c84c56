// Replicas of several cores of XLA that take several steps in a launch, by fit() and in functions with minimize() in
// them, take the same steps as one CPU.
#include "cohort/function.h"
#include "cohort/train.h"
#include "tests/equivalence/cores.h"
#include "tests/support/counting_runner.h"

namespace cohort::equivalence::xla_core_loops_test {
namespace {

using cohort::testing::CountingRunner;

// 20 steps of a model, of which so many are one launch.
torch::Tensor weights_after_loops(const Strategy& strategy, const Example& data, int64_t steps_per_execution) {
  const auto scope = strategy.scope();
  torch::manual_seed(3);
  Model model([] {
    auto net = std::make_shared<Cnn>();
    net->to(torch::kDouble);
    return net;
  });
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .steps_per_execution = steps_per_execution});
  model.fit(Dataset::from_tensor_slices(data).batch(4), {.verbose = Verbose::kSilent});
  std::vector<torch::Tensor> all;
  for (const auto& [name, weight] : model.weights()) all.push_back(weight.reshape({-1}).to(torch::kDouble));
  return torch::cat(all).cpu();
}

class XlaCoreLoops : public XlaCores, public ::testing::WithParamInterface<std::vector<int64_t>> {};

TEST_P(XlaCoreLoops, StepsOfAModel) {
  const Example data = classified(80);
  const torch::Tensor alone = weights_after_loops(OneDeviceStrategy("/CPU:0"), data, 1);
  const Strategy strategy = cut(GetParam());
  EXPECT_LT(distance(alone, weights_after_loops(strategy, data, 1)), 1e-9);
  const CountingRunner::Scope counting;
  EXPECT_LT(distance(alone, weights_after_loops(strategy, data, 7)), 1e-9);
  EXPECT_EQ((std::vector<int64_t>(counting->launches.end() - 3, counting->launches.end())),
            (std::vector<int64_t>{7, 7, 7}));
}

// The weights after 20 steps of a loop of one's own, a function with minimize() in it, in loops of so many.
using Divide = std::function<torch::Tensor(const torch::Tensor&)>;
torch::Tensor weights_after_functions(const Strategy& strategy, const Example& data, int64_t together,
                                      const Divide& divide) {
  torch::manual_seed(3);
  auto net = strategy.mirror([] {
    auto made = std::make_shared<Cnn>();
    made->to(torch::kDouble);
    return made;
  });
  auto optimizer = strategy.optimizer(net, Adam({.learning_rate = 0.01}));
  auto step = function(
      [&](Replica& replica, const torch::Tensor& x, const torch::Tensor& y) {
        optimizer[replica].minimize(torch::nn::functional::cross_entropy(net[replica]->forward(divide(x)), y) /
                                    strategy.num_replicas_in_sync());
      },
      {.name = "step"});
  for (int64_t begin = 0; begin < kSteps; begin += together) {
    strategy.run_loop(std::min<int64_t>(together, kSteps - begin), [&](int64_t i) {
      const Example batch = data.rows((begin + i) * 4, (begin + i + 1) * 4);
      strategy.run(
          [&](Replica& replica, const Example& part) {
            const Example share = part.to(replica.device());
            step(replica, share.x, share.y);
          },
          equivalence::split(batch, strategy.num_local_replicas()));
    });
  }
  std::vector<torch::Tensor> all;
  for (const auto& weight : net.copies().back()->parameters()) all.push_back(weight.detach().cpu().reshape({-1}));
  return torch::cat(all);
}

using Parts = std::vector<int64_t>;
INSTANTIATE_TEST_SUITE_P(Dims, XlaCoreLoops, ::testing::Values(Parts{1, 1, 2, 1}, Parts{1, 1, 1, 2}, Parts{1, 1, 2, 2}),
                         [](const auto& info) { return c10::str(info.param[2], "x", info.param[3]); });

class XlaReplicasOfCores : public XlaCores {};

TEST_F(XlaReplicasOfCores, MinimizeInAFunction) {
  const Example data = classified(80);
  const torch::Tensor host = weights_after_functions(MirroredStrategy({.devices = cpu_devices(2)}), data, 1,
                                                     [](const torch::Tensor& x) { return x; });
  const XlaStrategy strategy(
      {.plugin = "cpu", .num_devices = 4, .num_cores_per_replica = 2, .plugin_options = kEightDevices});
  const auto divide = [&](const torch::Tensor& x) {
    return strategy.experimental_split_to_logical_devices(x, {1, 1, 2, 1});
  };
  EXPECT_LT(distance(host, weights_after_functions(strategy, data, 1, divide)), 1e-9);
  const CountingRunner::Scope counting;
  EXPECT_LT(distance(host, weights_after_functions(strategy, data, 7, divide)), 1e-9);
  EXPECT_EQ((std::vector<int64_t>(counting->launches.end() - 3, counting->launches.end())),
            (std::vector<int64_t>{7, 7, 6}));
}

TEST_F(XlaReplicasOfCores, StepsOfAModel) {
  const Example data = classified(80);
  const torch::Tensor host = weights_after_loops(MirroredStrategy({.devices = cpu_devices(2)}), data, 1);
  EXPECT_LT(distance(host, weights_after_loops(cut({1, 1, 2, 1}, 2), data, 7)), 1e-9);
}

}  // namespace
}  // namespace cohort::equivalence::xla_core_loops_test
