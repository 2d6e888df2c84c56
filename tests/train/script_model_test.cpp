// Model over a module that Python wrote: everything that a Model does, as with the same module written by hand.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "cohort/cohort.h"
#include "tests/support/files.h"
#include "tests/support/scripted_net.h"

namespace cohort::script_model_test {
namespace {

using testing::kScriptClasses;
using testing::kScriptFeatures;
using testing::net_by_hand;
using testing::script_of;
using testing::TemporaryFolder;

Dataset batches() {  // the last one is short
  const torch::Tensor x = torch::sin(torch::arange(55 * kScriptFeatures, torch::kDouble)).view({55, kScriptFeatures});
  return Dataset::from_tensor_slices(x, torch::arange(55) % kScriptClasses).batch(10);
}

void compile(Model& model) {
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy()}});
}

History fit(Model& model) {
  compile(model);
  return model.fit(batches(), {.epochs = 2, .verbose = Verbose::kSilent});
}

// All weights but the count of batches, which a script does not keep.
std::map<std::string, torch::Tensor> weights_of(const Model& model) {
  std::map<std::string, torch::Tensor> weights;
  for (const auto& [name, tensor] : model.weights()) weights[name] = tensor;
  weights.erase("norm.num_batches_tracked");
  return weights;
}

void expect_near(const Model& one, const Model& other) {
  const auto given = weights_of(other);
  for (const auto& [name, tensor] : weights_of(one)) {
    ASSERT_TRUE(given.contains(name)) << name;
    EXPECT_LT((tensor - given.at(name)).abs().max().item<double>(), 1e-9) << name;
  }
}

TEST(ScriptModel, FitsAsTheModelByHand) {
  for (const int replicas : {1, 2}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const auto scope = strategy.scope();
    Model by_hand([] { return net_by_hand(); });
    Model scripted(script_of(net_by_hand()));
    const History first = fit(by_hand);
    const History second = fit(scripted);
    expect_near(by_hand, scripted);
    EXPECT_NEAR(first["loss"].back(), second["loss"].back(), 1e-9);
    EXPECT_NEAR(by_hand.evaluate(batches(), {.verbose = Verbose::kSilent})["loss"],
                scripted.evaluate(batches(), {.verbose = Verbose::kSilent})["loss"], 1e-9);
    EXPECT_TRUE(torch::allclose(by_hand.predict(batches()), scripted.predict(batches()), 0.0, 1e-9));
  }
}

TEST(ScriptModel, ParametersInOneStorageStayApart) {
  const torch::Tensor memory = torch::tensor({2.0, 3.0, 5.0, 7.0});
  torch::jit::Module script("affine");
  script.register_parameter("scale", memory.narrow(0, 0, 2), /*is_buffer=*/false);
  script.register_parameter("shift", memory.narrow(0, 2, 2), /*is_buffer=*/false);
  script.define("def forward(self, x):\n  return x * self.scale + self.shift\n");
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const Model model(script);
  EXPECT_TRUE(model(torch::ones({1, 2})).equal(torch::tensor({{7.0, 10.0}})));
}

TEST(ScriptModel, ItsLayersAreTheChildrenAndCanBeFrozen) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  Model model(script_of(net_by_hand()));
  std::vector<std::string> types;
  for (const ModelLayer& layer : model.layers()) types.push_back(layer.name() + " " + layer.type());
  EXPECT_EQ(types, (std::vector<std::string>{". Net", "hidden Linear", "norm BatchNorm1d", "head Linear"}));
  model.layer("norm").set_trainable(false);
  const auto before = weights_of(model);
  fit(model);
  const auto after = weights_of(model);
  for (const char* name : {"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}) {
    EXPECT_TRUE(torch::equal(before.at(name), after.at(name))) << name;
  }
  EXPECT_FALSE(torch::equal(before.at("head.weight"), after.at("head.weight")));
}

// A script of two inputs that returns two outputs: as a tuple, or by name.
torch::jit::Module two_headed(const char* returned) {
  torch::jit::Module script("__torch__.TwoHeaded");
  script.register_attribute("training", c10::BoolType::get(), true);
  const auto weight = [](int64_t rows, int64_t columns) {
    return torch::sin(torch::arange(rows * columns, torch::kDouble)).view({rows, columns}).set_requires_grad(true);
  };
  script.register_parameter("first", weight(3, 2), /*is_buffer=*/false);
  script.register_parameter("second", weight(1, 4), /*is_buffer=*/false);
  script.define(std::string("def forward(self, a, b):\n"
                            "  x = torch.tanh(torch.linear(a, self.first))\n"
                            "  y = torch.linear(b, self.second)\n") +
                returned);
  return script;
}

TEST(ScriptModel, SeveralInputsAndOutputs) {
  const torch::Tensor a = torch::sin(torch::arange(22, torch::kDouble)).view({11, 2});
  const torch::Tensor b = torch::cos(torch::arange(44, torch::kDouble)).view({11, 4});
  const Dataset data =
      Dataset::from_tensor_slices(Example{.inputs = {{"a", a}, {"b", b}},
                                          .targets = {{"x", a.sum(1, true).expand({11, 3})}, {"y", b.mean(1, true)}}})
          .batch(4);
  std::vector<std::map<std::string, torch::Tensor>> results;
  for (const char* returned : {"  return (x, y)\n", "  return {\"x\": x, \"y\": y}\n"}) {
    for (const int replicas : {1, 2}) {
      const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
      const auto scope = strategy.scope();
      Model model(two_headed(returned), ModelOptions{.inputs = {"a", "b"}, .outputs = {"x", "y"}});
      model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                     .losses = {{"x", MeanSquaredError()}, {"y", MeanSquaredError()}}});
      model.fit(data, {.epochs = 2, .verbose = Verbose::kSilent});
      results.push_back(weights_of(model));
    }
  }
  for (const auto& result : results) {
    for (const auto& [name, tensor] : result) {
      EXPECT_LT((tensor - results.front().at(name)).abs().max().item<double>(), 1e-9) << name;
    }
  }
}

TEST(ScriptModel, WeightsAndScriptsAreSaved) {
  const TemporaryFolder folder;
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  Model model(script_of(net_by_hand()));
  fit(model);
  model.save_weights(folder / "net.safetensors");
  Model other(script_of(net_by_hand()));
  other.load_weights(folder / "net.safetensors");
  expect_near(model, other);

  const auto script = std::dynamic_pointer_cast<ScriptModule>(other.module().copies().front());
  ASSERT_NE(script, nullptr);
  script->eval();
  script->save_script(folder / "net.pt");
  const Model read(torch::jit::load((folder / "net.pt").string()));
  expect_near(model, read);
}

}  // namespace
}  // namespace cohort::script_model_test
