#include "cohort/train/export.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <csignal>

#include "cohort/error.h"
#include "cohort/strategy.h"
#include "cohort/train/script_module.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::export_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::names_in;
using cohort::testing::TemporaryFolder;

class ExportTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  torch::Tensor x_ = torch::randn({3, 5});

  static Sequential net() {
    Sequential model{Dense(4, Activation::kRelu), BatchNormalization(), Dropout(0.5), Dense(2)};
    model.build({5});
    return model;
  }

  template <typename Fn>
  static Model of_function(Fn fn) {
    struct Net : torch::nn::Module {
      explicit Net(Fn fn) : fn(std::move(fn)), linear(register_module("linear", torch::nn::Linear(5, 5))) {}
      torch::Tensor forward(const torch::Tensor& x) { return fn(linear(x)); }
      Fn fn;
      torch::nn::Linear linear;
    };
    return Model([fn] { return std::make_shared<Net>(fn); }, "net");
  }
};

TEST_F(ExportTest, TorchScriptIsLoadedByLibTorch) {
  const Sequential model = net();
  export_model(model, folder_ / "net.pt", {.example = {.x = x_}});
  torch::jit::Module loaded = torch::jit::load((folder_ / "net.pt").string());
  loaded.train();
  loaded.eval();
  for (const int64_t size : {1, 2, 17}) {
    const torch::Tensor x = torch::randn({size, 5});
    EXPECT_TRUE(torch::allclose(loaded.forward({x}).toTensor(), model(x), 1e-6, 1e-6));
  }
  // The names are those of the model.
  const auto given = model.weights();
  const auto parameters = loaded.named_parameters();
  EXPECT_EQ(parameters.size(), 6U);
  for (const auto& parameter : parameters) {
    const auto found =
        std::find_if(given.begin(), given.end(), [&](const auto& each) { return each.first == parameter.name; });
    ASSERT_NE(found, given.end()) << parameter.name;
    EXPECT_TRUE(torch::equal(found->second, parameter.value));
  }
}

TEST_F(ExportTest, ATrainedModelIsWrittenAsItPredictsAndStaysAsItIs) {
  Sequential model = net();
  model.compile(
      {.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse", .precision = PrecisionPolicy::kMixedBFloat16});
  model.fit(torch::randn({32, 5}), torch::randn({32, 2}), {.verbose = Verbose::kSilent});
  model.module().copies().front()->train();
  const NamedTensors before = model.weights();
  export_model(model, folder_ / "net.pt", {.example = {.x = x_}});
  EXPECT_TRUE(model.module().copies().front()->is_training());
  const NamedTensors after = model.weights();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i].second, after[i].second));
  // The file computes in float32, the model in bfloat16.
  torch::jit::Module loaded = torch::jit::load((folder_ / "net.pt").string());
  EXPECT_TRUE(torch::allclose(loaded.forward({x_}).toTensor(), model(x_), 0.05, 0.05));
  for (const auto& parameter : loaded.parameters()) {
    EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
    EXPECT_EQ(parameter.storage().nbytes(), parameter.nbytes()) << "the file has memory that belongs to others";
  }
  EXPECT_TRUE(torch::allclose(Model(loaded)(x_), loaded.forward({x_}).toTensor()));
}

TEST_F(ExportTest, AWrittenModelIsAModelAgain) {
  const Sequential model = net();
  export_model(model, folder_ / "net.pt", {.example = {.x = x_}});
  const Model again(torch::jit::load((folder_ / "net.pt").string()));
  export_model(again, folder_ / "again.pt", {.example = {.x = x_}});
  torch::jit::Module loaded = torch::jit::load((folder_ / "again.pt").string());
  EXPECT_TRUE(torch::allclose(loaded.forward({x_}).toTensor(), model(x_), 1e-6, 1e-6));
}

TEST_F(ExportTest, AFixedBatch) {
  const Model model = of_function([](const torch::Tensor& x) { return x * std::sqrt(static_cast<double>(x.size(0))); });
  expect_error<InvalidArgument>([&] { export_model(model, folder_ / "net.onnx", {.example = {.x = x_}}); },
                                "batch_size makes a file for batches of one size");
  export_model(model, folder_ / "net.pt", {.example = {.x = x_}, .batch_size = 7});
  torch::jit::Module loaded = torch::jit::load((folder_ / "net.pt").string());
  const torch::Tensor x = torch::randn({7, 5});
  EXPECT_TRUE(torch::allclose(loaded.forward({x}).toTensor(), model(x), 1e-6, 1e-6));
}

TEST_F(ExportTest, RefusesWhatATraceCannotKeep) {
  const auto refuses = [&](const Model& model, const std::string& why) {
    for (const char* const file : {"net.pt", "net.onnx"}) {
      expect_error<InvalidArgument>([&] { export_model(model, folder_ / file, {.example = {.x = x_}}); }, why);
    }
  };
  refuses(of_function([](const torch::Tensor& x) { return x.sum().item<float>() > 0 ? x : -x; }),
          "looks at values on the host (aten::item)");
  refuses(of_function([](const torch::Tensor& x) { return x.size(0) > 3 ? x.exp() : x.tanh(); }), "go other ways");
  refuses(of_function([](const torch::Tensor& x) { return x.size(0) > 1 ? x : x + 1; }), "for a batch of 1");
  refuses(of_function([](const torch::Tensor& x) { return x + torch::rand_like(x); }), "draws random numbers");
  EXPECT_TRUE(names_in(folder_.path()).size() <= 2);
}

TEST_F(ExportTest, NamesTheOperationAndTheModule) {
  const Model model = of_function([](const torch::Tensor& x) { return torch::erfinv(x.sigmoid()); });
  expect_error<InvalidArgument>(
      [&] { export_model(model, folder_ / "net.onnx", {.example = {.x = x_}}); },
      "the operation aten::erfinv has no form in ONNX here; it stands in the module \"linear\"");
}

TEST_F(ExportTest, RefusesWrongCalls) {
  const Sequential model = net();
  expect_error<InvalidArgument>([&] { export_model(model, folder_ / "net.h5", {.example = {.x = x_}}); },
                                "the suffix is \".h5\", wanted .pt (TorchScript), .onnx or .mlir (StableHLO)");
  expect_error<InvalidArgument>([&] { export_model(model, folder_ / "net.pt", {}); },
                                "ExportOptions::example has no inputs");
  expect_error<InvalidArgument>(
      [&] { export_model(model, folder_ / "net.pt", {.example = {.x = x_}, .batch_size = -1}); }, "batch_size is -1");
  expect_error<FailedPrecondition>(
      [&] { export_model(Sequential{Dense(2)}, folder_ / "net.pt", {.example = {.x = x_}}); }, "built");
  const MirroredStrategy sharded({.devices = cpu_devices(2), .sharding = {.stage = 3}});
  const auto scope = sharded.scope();
  const Sequential shared = net();
  expect_error<FailedPrecondition>([&] { export_model(shared, folder_ / "net.pt", {.example = {.x = x_}}); },
                                   "no replica has the whole model");
  EXPECT_TRUE(names_in(folder_.path()).empty());
}

TEST_F(ExportTest, RefusesFilesThatCannotBeWritten) {
  const Sequential model = net();
  expect_error<NotFound>([&] { export_model(model, folder_ / "none/net.pt", {.example = {.x = x_}}); }, "none/net.pt");
  for (const char* const file : {"net.pt", "net.onnx"}) {
    struct rlimit before {};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    struct rlimit small = before;
    small.rlim_cur = 100;
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string error =
        cohort::testing::error_of<Unavailable>([&] { export_model(model, folder_ / file, {.example = {.x = x_}}); });
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_NE(error.find(file), std::string::npos) << error;
  }
  EXPECT_TRUE(names_in(folder_.path()).empty());
}

}  // namespace
}  // namespace cohort::export_test
