// The specification of the library: every synchronous strategy takes the same steps as one device with the same global
// batches, whatever the number of replicas, the split and the way of exchanging gradients.
#include <torch/torch.h>

#include <set>
#include <sstream>

#include "cohort/error.h"
#include "tests/equivalence/runs.h"

namespace cohort::equivalence::strategies_test {
namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(kFeatures, 31));
    inner = register_module("inner", torch::nn::Linear(31, 17));
    head = register_module("head", torch::nn::Linear(17, kClasses));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head->forward(torch::tanh(inner->forward(torch::relu(hidden->forward(x)))));
  }
  torch::nn::Linear hidden{nullptr}, inner{nullptr}, head{nullptr};
};
TORCH_MODULE(Net);

torch::Tensor weights_after(const Strategy& strategy, const Optimizer& rule, const RunOptions& run = {}) {
  return weights_after(strategy, rule, run, [] { return Net(); });
}

class Equivalence : public ::testing::TestWithParam<Case> {};

TEST_P(Equivalence, EveryOptimizerInFloat64) {
  for (const Rule& rule : rules()) {
    const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule.make());
    const torch::Tensor together = weights_after(GetParam().make(), rule.make());
    EXPECT_LT(distance(alone, together), 1e-9) << rule.name;
  }
}

TEST_P(Equivalence, MomentumInFloat32) {
  const auto rule = SGD({.learning_rate = 0.05, .momentum = 0.9});
  const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule, {.dtype = torch::kFloat});
  const torch::Tensor together = weights_after(GetParam().make(), rule, {.dtype = torch::kFloat});
  EXPECT_LT(distance(alone, together), 1e-5);
}

TEST_P(Equivalence, TwoRunsAreBitIdentical) {
  const auto rule = Adam({.learning_rate = 0.01});
  const torch::Tensor one = weights_after(GetParam().make(), rule, {.dtype = torch::kFloat});
  const torch::Tensor two = weights_after(GetParam().make(), rule, {.dtype = torch::kFloat});
  EXPECT_TRUE(torch::equal(one, two));
}

INSTANTIATE_TEST_SUITE_P(All, Equivalence, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(EquivalenceTest, HasARowForEveryOptimizerThatHasAName) {
  std::set<std::string> rows;
  for (const Rule& rule : rules()) rows.insert(rule.make().name());
  std::string known;
  try {
    Optimizer("there is none of that name");
  } catch (const Error& error) {  // NotFound, or Unimplemented in a build without the wing optimizers
    known = error.what();
  }
  known = known.substr(0, known.find(", and others"));
  std::istringstream names(known.substr(known.find("there are ") + 10));
  std::size_t count = 0;
  for (std::string name; std::getline(names >> std::ws, name, ',');) {
    EXPECT_TRUE(rows.count(Optimizer(name.c_str()).name())) << name;
    ++count;
  }
  EXPECT_EQ(count, rows.size()) << known;
}

TEST(EquivalenceTest, WouldNoticeADifferentRate) {
  const torch::Tensor one = weights_after(OneDeviceStrategy("/CPU:0"), SGD({.learning_rate = 0.1}));
  const torch::Tensor other = weights_after(OneDeviceStrategy("/CPU:0"), SGD({.learning_rate = 0.1 + 1e-6}));
  EXPECT_GT(distance(one, other), 1e-9);
}

TEST(EquivalenceTest, MatchesLibTorchsOwnAdam) {
  torch::manual_seed(5);
  Net net;
  net->to(torch::kDouble);
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
  for (const Example& batch : global_batches(torch::kDouble, true)) {
    adam.zero_grad();
    torch::nn::functional::cross_entropy(net->forward(batch.x), batch.y).backward();
    adam.step();
  }
  std::vector<torch::Tensor> flat;
  for (const auto& parameter : net->parameters()) flat.push_back(parameter.detach().reshape({-1}));
  const torch::Tensor ours =
      weights_after(MirroredStrategy({.devices = cpu_devices(2)}),
                    Adam({.learning_rate = 0.01, .epsilon = 1e-8, .formulation = Formulation::kTorch}));
  EXPECT_LT(distance(torch::cat(flat), ours), 1e-9);
}

}  // namespace
}  // namespace cohort::equivalence::strategies_test
