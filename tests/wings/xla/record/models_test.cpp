// The models of the zoo, forward and backward, on XLA's plugin for CPUs beside LibTorch's own results.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/models/zoo.h"
#include "tests/support/xla.h"
#include "wings/xla/device/runner.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {
namespace models_test {
namespace {

const torch::Device kDevice(torch::kXLA, 0);

// What a class is given to.
enum class Classes { kImages, kPixels, kTokens };

struct Zoo {
  const char* name;
  std::shared_ptr<LayerModule> (*make)();
  int64_t size;
  Classes of = Classes::kImages;
};

class ModelsTest : public testing::XlaCpuTest, public ::testing::WithParamInterface<Zoo> {
 protected:
  void SetUp() override {
    XlaCpuTest::SetUp();
    if (!plugin_) return;
    install_recorder({.devices = 2});
    set_runner(make_xla_runner(client(1)));
  }
  void TearDown() override { set_runner(nullptr); }
};

std::shared_ptr<LayerModule> make(torch::ScalarType dtype) {
  torch::manual_seed(5);
  std::shared_ptr<LayerModule> module = ModelsTest::GetParam().make();
  module->to(dtype);
  module->train();
  return module;
}

torch::Tensor as(const torch::Tensor& x, torch::ScalarType dtype) {
  return x.is_floating_point() ? x.to(dtype) : x;
}

// The loss and the gradients, by the parameters' names.
std::vector<torch::Tensor> step(LayerModule& module, const torch::Tensor& x, const torch::Tensor& y) {
  torch::Tensor scores = module.forward(x);
  if (ModelsTest::GetParam().of == Classes::kTokens) scores = scores.transpose(1, 2);
  const torch::Tensor loss = torch::cross_entropy_loss(scores, y);
  loss.backward();
  std::vector<torch::Tensor> all{loss.detach()};
  for (const torch::Tensor& p : module.parameters()) all.push_back(p.grad());
  for (const torch::Tensor& b : module.buffers()) all.push_back(b);
  return all;
}

// The largest distance of a tensor from the wanted one, as a part of that one's norm.
double distance(const std::vector<torch::Tensor>& got, const std::vector<torch::Tensor>& wanted) {
  double worst = got.size() == wanted.size() ? 0.0 : INFINITY;
  for (std::size_t i = 0; i < wanted.size() && i < got.size(); ++i) {
    const torch::Tensor w = wanted[i].to(torch::kDouble);
    const torch::Tensor off = got[i].to(torch::kCPU).to(torch::kDouble) - w;
    worst = std::max(worst, (off.norm() / (w.norm() + 1.0)).item<double>());
  }
  return worst;
}

std::vector<torch::Tensor> recorded_step(torch::ScalarType dtype, const torch::Tensor& x, const torch::Tensor& y) {
  const auto module = make(dtype);
  for (const auto& entry : module->named_parameters()) {
    torch::Tensor t = entry.value();
    move_in_place(t, kDevice);
    set_name(t, entry.key());
  }
  for (torch::Tensor& t : module->buffers()) move_in_place(t, kDevice);
  return step(*module, as(x, dtype).to(kDevice), y.to(kDevice));
}

TEST_P(ModelsTest, IsAsLibTorchComputesIt) {
  torch::manual_seed(6);
  const auto [name, build, size, of] = GetParam();
  const std::map<Classes, std::vector<int64_t>> labels = {
      {Classes::kImages, {2}}, {Classes::kPixels, {2, size, size}}, {Classes::kTokens, {2, size}}};
  const torch::Tensor x =
      of == Classes::kTokens ? torch::randint(10, labels.at(of), torch::kLong) : torch::randn({2, 3, size, size});
  const torch::Tensor y = torch::randint(10, labels.at(of), torch::kLong);
  const std::vector<torch::Tensor> exact = step(*make(torch::kDouble), as(x, torch::kDouble), y);
  EXPECT_LE(distance(recorded_step(torch::kDouble, x, y), exact), 1e-9);
  // Batch norms of few elements amplify what rounding leaves, in LibTorch, too: single precision is held to the exact
  // result no more strictly than LibTorch's own.
  const double own = distance(step(*make(torch::kFloat), x, y), exact);
  EXPECT_LE(distance(recorded_step(torch::kFloat, x, y), exact), std::max(1e-5, 4 * own)) << "LibTorch's own: " << own;
}

INSTANTIATE_TEST_SUITE_P(
    All, ModelsTest,
    ::testing::Values(
        Zoo{"resnet18", [] { return models::resnet18({.num_classes = 10}); }, 33},
        Zoo{"efficientnet",
            [] { return models::efficientnet(0, {.num_classes = 10, .dropout = 0.0, .stochastic_depth_prob = 0.0}); },
            33},
        Zoo{"vit",
            [] {
              return models::vision_transformer({.image_size = 32,
                                                 .patch_size = 8,
                                                 .num_layers = 2,
                                                 .num_heads = 4,
                                                 .hidden_dim = 64,
                                                 .mlp_dim = 128,
                                                 .num_classes = 10});
            },
            32},
        Zoo{"unet", [] { return models::unet({.num_classes = 10, .filters = 4, .levels = 2}); }, 13, Classes::kPixels},
        Zoo{"decoder",
            [] {
              return models::decoder({.vocab_size = 10,
                                      .hidden_size = 32,
                                      .intermediate_size = 48,
                                      .num_layers = 2,
                                      .num_heads = 4,
                                      .num_kv_heads = 2,
                                      .initializer_range = 0.2});
            },
            13, Classes::kTokens}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace models_test
}  // namespace cohort::record
