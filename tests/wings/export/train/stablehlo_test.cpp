// Written models as StableHLO, compiled and run by XLA's plugin for CPUs.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/train/export.h"
#include "cohort/train/functional.h"
#include "cohort/train/layers/merging.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/xla.h"
#include "tests/wings/export/train/export_cases.h"

namespace cohort::export_test {
namespace stablehlo_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::read_file;
using cohort::testing::TemporaryFolder;

// Writes a model for batches of this size, and returns what XLA computes with the file.
std::vector<torch::Tensor> run(const XlaClientPtr& client, const Model& model, const Example& example, int64_t size) {
  const TemporaryFolder folder;
  export_model(model, folder / "net.mlir", {.example = example, .batch_size = size});
  const XlaExecutablePtr program = client->compile(read_file(folder / "net.mlir"));
  std::vector<XlaBuffer> arguments;
  for (const auto& [name, input] : rows_of(example, size)) arguments.push_back(client->to_device(input, 0));
  const XlaLaunch launch = program->launch({arguments});
  std::vector<torch::Tensor> outputs;
  for (const XlaBuffer& each : launch.outputs[0]) outputs.push_back(each.to_host());
  return outputs;
}

class StableHloTest : public testing::XlaCpuTest, public ::testing::WithParamInterface<std::vector<ExportCase> (*)()> {
 protected:
  static void check(const XlaClientPtr& client, const ExportCase& each, int64_t size) {
    SCOPED_TRACE(each.name + ", a batch of " + std::to_string(size));
    const Model model = each.make();
    std::vector<torch::Tensor> outputs;
    try {
      outputs = run(client, model, each.example, size);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
      return;
    }
    const NamedTensors inputs = rows_of(each.example, size);
    const NamedTensors wanted =
        each.example.x.defined() ? NamedTensors{{"output", model(inputs.front().second)}} : model(inputs);
    ASSERT_EQ(outputs.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto& [name, output] = wanted[i];
      ASSERT_EQ(outputs[i].sizes(), output.sizes()) << name;
      const double largest = std::max(1.0, output.abs().max().item<double>());
      EXPECT_LE((outputs[i] - output).abs().max().item<double>(), each.tolerance * largest) << name;
    }
  }
};

TEST_P(StableHloTest, XlaComputesWhatTheModelDoes) {
  const XlaClientPtr devices = client(1);
  for (const ExportCase& each : GetParam()()) {
    for (const int64_t size : {1, 3, 64}) check(devices, each, size);
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, StableHloTest, ::testing::Values(activation_cases));
INSTANTIATE_TEST_SUITE_P(Layers, StableHloTest, ::testing::Values(layer_cases));
INSTANTIATE_TEST_SUITE_P(Sequences, StableHloTest, ::testing::Values(sequence_cases));
INSTANTIATE_TEST_SUITE_P(Modules, StableHloTest, ::testing::Values(module_cases));
INSTANTIATE_TEST_SUITE_P(Zoo, StableHloTest, ::testing::Values(zoo_cases));

class StableHloFileTest : public testing::XlaCpuTest {
 protected:
  static Sequential net() {
    Sequential model{Dense(4, Activation::kRelu), BatchNormalization(), Dense(2)};
    model.build({5});
    return model;
  }

  torch::Tensor x_ = torch::randn({3, 5});
};

TEST_F(StableHloFileTest, AFunctionalModelHasItsInputsAndOutputs) {
  torch::manual_seed(4);
  const SymbolicTensor image = Input({4, 6}, {.name = "image"}), numbers = Input({3}, {.name = "numbers"});
  const SymbolicTensor both = Concatenate()({Flatten()(image), Dense(5, "relu")(numbers)});
  const Functional model({image, numbers}, {{"class", Dense(2)(both)}, {"score", Dense(1, "sigmoid")(both)}});
  const Example example{.inputs = {{"image", torch::randn({2, 4, 6})}, {"numbers", torch::randn({2, 3})}}};
  const XlaClientPtr devices = client(1);
  for (const int64_t size : {1, 3, 64}) {
    const std::vector<torch::Tensor> outputs = run(devices, model, example, size);
    const NamedTensors wanted = model(rows_of(example, size));
    ASSERT_EQ(outputs.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(torch::allclose(outputs[i], wanted[i].second, 1e-5, 1e-5));
  }
}

// The process has done backwards before, after which LibTorch takes no devices that differentiate.
TEST_F(StableHloFileTest, ATrainedModel) {
  Sequential model = net();
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  model.fit(torch::randn({32, 5}), torch::randn({32, 2}), {.verbose = Verbose::kSilent});
  const XlaClientPtr devices = client(1);
  const std::vector<torch::Tensor> outputs = run(devices, model, {.x = x_}, 3);
  ASSERT_EQ(outputs.size(), 1U);
  EXPECT_TRUE(torch::allclose(outputs[0], model(x_), 1e-5, 1e-5));
  model.fit(torch::randn({32, 5}), torch::randn({32, 2}), {.verbose = Verbose::kSilent});
  EXPECT_TRUE(torch::allclose(run(devices, model, {.x = x_}, 3)[0], model(x_), 1e-5, 1e-5));
}

TEST_F(StableHloFileTest, RefusesWhatItCannotWrite) {
  const TemporaryFolder folder;
  expect_error<InvalidArgument>([&] { export_model(net(), folder / "net.mlir", {.example = {.x = x_}}); },
                                "batch_size is 0, wanted that of all batches");
  struct Net : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return torch::digamma(linear(x)); }
    torch::nn::Linear linear{register_module("linear", torch::nn::Linear(5, 5))};
  };
  const Model model([] { return std::make_shared<Net>(); }, "net");
  expect_error<InvalidArgument>(
      [&] { export_model(model, folder / "net.mlir", {.example = {.x = x_}, .batch_size = 3}); },
      "the operation aten::digamma has no form in StableHLO here; it stands in the module \"linear\" or behind it");
  EXPECT_TRUE(cohort::testing::names_in(folder.path()).empty());
}

}  // namespace
}  // namespace stablehlo_test
}  // namespace cohort::export_test
