// A module that TorchScript knows, as Python saves it, beside the same module written by hand.
#include <torch/torch.h>

#include <map>

#include "cohort/train/script_module.h"
#include "tests/equivalence/runs.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/scripted_net.h"

namespace cohort::equivalence::script_module_test {
namespace {

using testing::net_by_hand;
using testing::script_of;

using State = std::map<std::string, torch::Tensor>;

// Trains any module of the net's shape, and returns parameters and buffers by name.
template <typename Mirror>
State after(const Strategy& strategy, const Mirror& mirror) {
  auto module = mirror(strategy);
  const auto optimizer = strategy.optimizer(module, Adam({.learning_rate = 0.01}));
  module.train();
  for (const Example& batch : global_batches(torch::kDouble, true)) {
    strategy.run(
        [&](Replica& replica, const Example& share) {
          const auto each = torch::nn::functional::cross_entropy(
              module[replica]->forward(share.x), share.y,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          optimizer[replica].minimize(replica.global_mean(each));
        },
        split(batch, strategy.num_local_replicas()));
  }
  State state;
  for (const auto& [name, tensor] : module.state()) state[name] = tensor.clone();
  state.erase("norm.num_batches_tracked");  // LibTorch's module counts, the script does not
  return state;
}

void expect_near(const State& one, const State& other) {
  ASSERT_EQ(one.size(), 9U);
  ASSERT_EQ(other.size(), one.size());
  for (const auto& [name, tensor] : one) {
    ASSERT_TRUE(other.contains(name)) << name;
    EXPECT_LT(distance(tensor, other.at(name)), 1e-9) << name;
  }
}

TEST(Script, TrainsAsTheSameModuleByHand) {
  const torch::jit::Module script = script_of(net_by_hand());
  for (const int replicas : {1, 2}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    expect_near(after(strategy, [](const Strategy& by) { return by.mirror([] { return net_by_hand(); }); }),
                after(strategy, [&](const Strategy& by) { return by.mirror(script); }));
  }
  const CentralStorageStrategy central({.compute_devices = cpu_devices(2)});
  expect_near(after(central, [](const Strategy& by) { return by.mirror([] { return net_by_hand(); }); }),
              after(central, [&](const Strategy& by) { return by.mirror(script); }));
  EXPECT_EQ(script.attr("hidden")
                .toModule()
                .attr("weight")
                .toTensor()
                .sub(net_by_hand()->hidden->weight)
                .abs()
                .max()
                .item<double>(),
            0.0)
      << "the copies learn, not the original";
}

TEST(Script, AFileIsReadTrainedAndWritten) {
  const testing::TemporaryFolder folder;
  script_of(net_by_hand()).save((folder / "before.pt").string());
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  std::shared_ptr<ScriptModule> first;
  const State trained = after(strategy, [&](const Strategy& by) {
    auto mirrored = by.mirror(ScriptModule::load(folder / "before.pt")->script());
    first = mirrored[0];
    return mirrored;
  });
  expect_near(trained, after(strategy, [](const Strategy& by) { return by.mirror([] { return net_by_hand(); }); }));
  first->eval();
  first->save_script(folder / "after.pt");
  torch::jit::Module read = torch::jit::load((folder / "after.pt").string());
  const torch::Tensor x = torch::rand({4, kFeatures}, torch::kDouble);
  EXPECT_FALSE(read.is_training());
  EXPECT_TRUE(torch::equal(read.forward({x}).toTensor(), first->forward(x)));
}

TEST(Script, ModesAndNamesAreTheScripts) {
  const auto module = std::make_shared<ScriptModule>(script_of(net_by_hand()));
  std::vector<std::string> names;
  for (const auto& item : module->named_parameters()) names.push_back(item.key());
  EXPECT_EQ(names, (std::vector<std::string>{"scale", "hidden.weight", "hidden.bias", "norm.weight", "norm.bias",
                                             "head.weight", "head.bias"}));
  EXPECT_EQ(module->name(), "Net");
  EXPECT_EQ(module->named_children()["norm"]->name(), "BatchNorm1d");
  module->eval();
  EXPECT_FALSE(module->script().attr("norm").toModule().is_training());
  module->train();
  EXPECT_TRUE(module->script().attr("norm").toModule().is_training());
  // A child by itself, as freezing a layer does it.
  module->named_children()["norm"]->eval();
  EXPECT_TRUE(module->script().is_training());
  EXPECT_FALSE(module->script().attr("norm").toModule().is_training());
}

TEST(Script, ATiedParameterStaysOneTensor) {
  torch::jit::Module script("__torch__.Tied");
  script.register_attribute("training", c10::BoolType::get(), true);
  const torch::Tensor weight = torch::rand({3, 3}).set_requires_grad(true);
  script.register_parameter("first", weight, /*is_buffer=*/false);
  script.register_parameter("second", weight, /*is_buffer=*/false);
  script.define("def forward(self, x):\n  return torch.mm(torch.mm(x, self.first), self.second)\n");
  const ScriptModule module(script);
  const auto parameters = module.named_parameters();
  EXPECT_TRUE(parameters["first"].is_same(parameters["second"]));
  EXPECT_FALSE(parameters["first"].is_same(weight));
  EXPECT_TRUE(parameters["first"].is_leaf() && parameters["first"].requires_grad());
}

TEST(Script, WhatIsNoModuleIsNamed) {
  const testing::TemporaryFolder folder;
  testing::expect_error<NotFound>([&] { (void)ScriptModule::load(folder / "none.pt"); },
                                  "none.pt: there is no such file");
  testing::write_file(folder / "text.pt", "no module");
  testing::expect_error<DataLoss>([&] { (void)ScriptModule::load(folder / "text.pt"); }, "text.pt: is no module");
  torch::jit::Module pair("__torch__.Pair");
  pair.define("def forward(self, x):\n  return (x, x)\n");
  testing::expect_error<InvalidArgument>([&] { (void)ScriptModule(pair).forward(torch::ones({1})); },
                                         "Pair: forward returned Tuple, wanted a tensor");
}

}  // namespace
}  // namespace cohort::equivalence::script_module_test
