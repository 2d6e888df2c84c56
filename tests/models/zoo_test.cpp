#include "cohort/models/zoo.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/error.h"
#include "cohort/weights.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::models::zoo_test {
namespace {

using cohort::testing::expect_error;
using nlohmann::json;

struct Case {
  std::string name;
  std::string builder;  // torchvision's
  json options;
  std::function<std::shared_ptr<LayerModule>()> make;
  int64_t image_size = 64;
  bool of_pixels = false;  // the output is an image
};

Case efficientnet_case(int variant, int64_t image_size) {
  const std::string name = "efficientnet_b" + std::to_string(variant);
  return {name,
          name,
          {{"num_classes", 7}, {"dropout", 0.0}, {"stochastic_depth_prob", 0.0}},
          [variant] { return efficientnet(variant, {.num_classes = 7, .dropout = 0.0, .stochastic_depth_prob = 0.0}); },
          image_size};
}

Case vit_case(const std::string& name, const VisionTransformerOptions& options) {
  return {name,
          "vision_transformer",
          {{"image_size", options.image_size},
           {"patch_size", options.patch_size},
           {"num_layers", options.num_layers},
           {"num_heads", options.num_heads},
           {"hidden_dim", options.hidden_dim},
           {"mlp_dim", options.mlp_dim},
           {"num_classes", options.num_classes}},
          [options] {
            auto made = vision_transformer(options);
            // It starts at zero, and hides the others' gradients then.
            const torch::NoGradGuard no_grad;
            for (const auto& item : made->named_parameters()) {
              if (item.key() == "heads.head.weight") item.value().detach().normal_(0.0, 0.1);
            }
            return made;
          },
          options.image_size};
}

// A minute each and gigabytes: `make parity` asks for them.
bool all_models() {
  return std::getenv("COHORT_ALL_MODELS") != nullptr;
}

std::vector<Case> cases() {
  std::vector<Case> list = {
      {"resnet18", "resnet18", {{"num_classes", 7}}, [] { return resnet18({.num_classes = 7}); }},
      {"resnet50", "resnet50", {{"num_classes", 7}}, [] { return resnet50({.num_classes = 7}); }},
      {"resnet20", "resnet_cifar", {{"blocks", 3}, {"num_classes", 10}}, [] { return resnet_cifar(3); }, 32},
      efficientnet_case(0, 64),
      vit_case("vit_tiny", {.image_size = 48, .num_heads = 3, .hidden_dim = 192, .mlp_dim = 768, .num_classes = 7}),
      {"unet",
       "unet",
       {{"filters", 4}, {"levels", 3}, {"num_classes", 7}},
       [] { return unet({.num_classes = 7, .filters = 4, .levels = 3}); },
       27,  // odd on the first two levels
       /*of_pixels=*/true},
  };
  if (!all_models()) return list;
  for (int variant = 1; variant <= 7; ++variant) list.push_back(efficientnet_case(variant, 64));
  list.push_back(vit_case("vit_base", {.image_size = 48, .num_classes = 7}));
  list.push_back(vit_case(
      "vit_large",
      {.image_size = 48, .num_layers = 24, .num_heads = 16, .hidden_dim = 1024, .mlp_dim = 4096, .num_classes = 7}));
  list.push_back({"resnet34", "resnet34", {{"num_classes", 7}}, [] { return resnet34({.num_classes = 7}); }});
  list.push_back({"resnet101", "resnet101", {{"num_classes", 7}}, [] { return resnet101({.num_classes = 7}); }});
  list.push_back({"resnet152", "resnet152", {{"num_classes", 7}}, [] { return resnet152({.num_classes = 7}); }});
  return list;
}

NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors state;
  for (const auto& item : module.named_parameters()) state.emplace_back(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers()) state.emplace_back(item.key(), item.value());
  return state;
}

double difference(const torch::Tensor& got, const torch::Tensor& wanted) {
  const double largest = std::max(wanted.abs().max().item<double>(), 1e-6);
  return (got - wanted).abs().max().item<double>() / largest;
}

// The models are compared in float64: torchvision's PyTorch may be of another version than LibTorch, whose float32
// differs by a percent after fifty layers.
class ZooTest : public ::testing::Test {
 protected:
  // More say nothing: batch norms over four examples make a last bit ten times larger with each.
  static constexpr int64_t kSteps = 3;

  torch::Tensor x_, y_;

  void draw_input(const Case& test) {
    torch::manual_seed(7);
    x_ = torch::randn({4, 3, test.image_size, test.image_size}, torch::kDouble);
    y_ = test.of_pixels ? torch::randint(0, 7, {4, test.image_size, test.image_size}, torch::kLong)
                        : torch::randint(0, 7, {4}, torch::kLong);
  }

  // Leaves the weights and the input of each case, and the module itself.
  std::shared_ptr<LayerModule> write(const Case& test, const std::filesystem::path& folder) {
    draw_input(test);
    auto module = test.make();
    module->to(torch::kDouble);
    save_weights(folder / (test.name + ".weights.safetensors"), state_of(*module));
    save_weights(folder / (test.name + ".input.safetensors"), {{"x", x_}, {"y", y_}});
    return module;
  }

  void compare(const Case& test, LayerModule& module, const NamedTensors& results) {
    std::map<std::string, torch::Tensor> wanted(results.begin(), results.end());
    draw_input(test);
    module.eval();
    EXPECT_LT(difference(module.forward(x_).detach(), wanted.at("eval")), 1e-8);
    module.train();
    torch::optim::SGD optimizer(module.parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
    for (int64_t step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const torch::Tensor logits = module.forward(x_);
      const torch::Tensor loss = torch::nn::functional::cross_entropy(logits, y_);
      loss.backward();
      if (step == 0) {
        EXPECT_LT(difference(logits.detach(), wanted.at("train")), 1e-8);
        compare_gradients(module, wanted);
      }
      optimizer.step();
      EXPECT_NEAR(loss.item<double>(), wanted.at("losses")[step].item<double>(), 1e-6) << "step " << step;
    }
  }

  static void compare_gradients(const torch::nn::Module& module, std::map<std::string, torch::Tensor>& wanted) {
    double largest = 0.0;
    for (const auto& [name, tensor] : wanted) {
      if (name.rfind("gradient/", 0) == 0) largest = std::max(largest, tensor.abs().max().item<double>());
    }
    for (const auto& item : module.named_parameters()) {
      const torch::Tensor& reference = wanted.at("gradient/" + item.key());
      // A bias before a batch norm has a gradient of rounding errors: they are held to the largest of all gradients.
      const double worst = (item.value().grad() - reference).abs().max().item<double>();
      EXPECT_LT(worst, 1e-7 * std::max(reference.abs().max().item<double>(), 1e-3 * largest)) << item.key();
    }
  }
};

TEST_F(ZooTest, AgreesWithTorchvisionInOutputsGradientsAndThreeSteps) {
  if (std::system("/usr/bin/python3 -c 'import torchvision' 2> /dev/null") != 0) {
    GTEST_SKIP() << "/usr/bin/python3 has no torchvision (Debian's python3-torchvision): no reference";
  }
  const cohort::testing::TemporaryFolder folder;
  json listed = json::array();
  std::vector<std::shared_ptr<LayerModule>> modules;
  for (const Case& test : cases()) {
    listed.push_back({{"name", test.name}, {"builder", test.builder}, {"options", test.options}, {"steps", kSteps}});
    modules.push_back(write(test, folder.path()));
  }
  std::ofstream(folder / "cases.json") << listed;
  // One start of Python, which takes seconds.
  const std::string command = "/usr/bin/python3 tests/models/reference.py " + folder.path().string();
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const Case test = cases()[i];
    SCOPED_TRACE(test.name);
    compare(test, *modules[i], load_weights(folder / (test.name + ".results.safetensors")).tensors);
    modules[i].reset();
  }
}

TEST_F(ZooTest, TakesNoExamples) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    const auto module = test.make();
    const torch::Tensor logits = module->forward(torch::zeros({0, 3, test.image_size, test.image_size}));
    EXPECT_EQ(logits.size(0), 0);
    logits.sum().backward();
    for (const torch::Tensor& parameter : module->parameters()) {
      EXPECT_TRUE(!parameter.grad().defined() || parameter.grad().abs().sum().item<double>() == 0.0);
    }
  }
}

TEST(ZooStartTest, BlocksMayStartAsIdentities) {
  const auto module = resnet18({.zero_init_residual = true});
  const auto weights = module->named_parameters();
  EXPECT_EQ(weights["layer1.0.bn2.weight"].abs().sum().item<double>(), 0.0);
  EXPECT_EQ(weights["layer1.0.bn1.weight"].sum().item<double>(), 64.0);
}

TEST(ZooStartTest, StochasticDepthLeavesOutWholeExamplesInTrainingOnly) {
  torch::manual_seed(3);
  const auto module = efficientnet(0, {.num_classes = 4, .dropout = 0.0, .stochastic_depth_prob = 0.9});
  const torch::Tensor x = torch::randn({2, 3, 32, 32});
  EXPECT_FALSE(torch::equal(module->forward(x), module->forward(x)));
  module->eval();
  EXPECT_TRUE(torch::equal(module->forward(x), module->forward(x)));
}

TEST(ZooStartTest, TheLayoutInMemoryChangesNothingButTheRounding) {
  const auto run = [](const std::shared_ptr<LayerModule>& module) {
    module->to(torch::kDouble);
    torch::manual_seed(3);
    const torch::Tensor y = module->forward(torch::randn({4, 3, 32, 32}, torch::kDouble));
    y.square().sum().backward();
    std::vector<torch::Tensor> results = {y.detach()};
    for (const torch::Tensor& parameter : module->parameters()) results.push_back(parameter.grad());
    return results;
  };
  const auto compare = [&](const auto& make) {
    std::vector<std::vector<torch::Tensor>> results;
    for (const bool last : {false, true}) {
      torch::manual_seed(1);
      results.push_back(run(make(last)));
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      const double largest = std::max(results[0][i].abs().max().item<double>(), 1.0);
      EXPECT_LT((results[1][i] - results[0][i]).abs().max().item<double>(), 1e-8 * largest) << i;
    }
  };
  compare([](bool last) { return resnet_cifar(1, {.num_classes = 5, .channels_last = last}); });
  compare([](bool last) {
    return efficientnet(0, {.num_classes = 5, .dropout = 0.0, .stochastic_depth_prob = 0.0, .channels_last = last});
  });
  compare([](bool last) { return unet({.num_classes = 5, .filters = 2, .levels = 2, .channels_last = last}); });
}

// Dropout and stochastic depth draw the same numbers, and batch norms learn their statistics once.
TEST(ZooStartTest, BlocksThatAreComputedAgainTrainAlike) {
  const auto compare = [](const torch::Tensor& x, const auto& make) {
    std::vector<NamedTensors> results(2);
    for (const bool again : {false, true}) {
      torch::manual_seed(1);
      const std::shared_ptr<LayerModule> module = make(again);
      module->to(torch::kDouble);
      torch::manual_seed(3);
      module->forward(x).square().sum().backward();
      NamedTensors& list = results[again ? 1 : 0];
      for (const auto& item : module->named_parameters()) list.emplace_back(item.key(), item.value().grad());
      for (const auto& item : module->named_buffers()) list.emplace_back(item.key(), item.value());
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_EQ(results[1][i].first, results[0][i].first);
      EXPECT_TRUE(at::allclose(results[1][i].second, results[0][i].second, 1e-9, 1e-9)) << results[0][i].first;
    }
  };
  torch::manual_seed(2);
  const torch::Tensor images = torch::randn({4, 3, 32, 32}, torch::kDouble);
  compare(images, [](bool again) { return resnet_cifar(1, {.num_classes = 5, .remat = again}); });
  compare(images.narrow(0, 0, 2), [](bool again) { return efficientnet(0, {.num_classes = 5, .remat = again}); });
  compare(images, [](bool again) {
    return vision_transformer({.image_size = 32,
                               .num_layers = 2,
                               .num_heads = 2,
                               .hidden_dim = 8,
                               .mlp_dim = 12,
                               .dropout = 0.2,
                               .stochastic_depth_prob = 0.5,
                               .num_classes = 5,
                               .remat = again});
  });
  compare(torch::randint(256, {3, 6}, torch::kLong), [](bool again) {
    return decoder(
        {.hidden_size = 8, .intermediate_size = 6, .num_layers = 2, .num_heads = 2, .dropout = 0.3, .remat = again});
  });
}

TEST(ZooStartTest, RefusesWhatDoesNotFit) {
  expect_error<InvalidArgument>([] { efficientnet(8); }, "variant is 8, wanted 0 to 7");
  expect_error<InvalidArgument>([] { vision_transformer({.image_size = 50}); },
                                "image_size is 50, wanted a multiple of patch_size, 16");
  expect_error<InvalidArgument>(
      [] {
        resnet18()->forward(torch::zeros({1, 28, 28}));
      },
      "wanted floating-point images [examples, 3, height, width]");
  const auto small = vision_transformer({.image_size = 48, .num_layers = 1});
  expect_error<InvalidArgument>(
      [&] {
        small->forward(torch::zeros({1, 3, 32, 32}));
      },
      "32 x 32 pixels, wanted 48 x 48");
  expect_error<InvalidArgument>([] { unet({.filters = 0}); }, "filters is 0 and levels 4");
  expect_error<InvalidArgument>([] { unet({.dropout = 1.0}); }, "dropout is 1");
  expect_error<InvalidArgument>(
      [] {
        unet({.filters = 2, .levels = 3})->forward(torch::zeros({1, 3, 9, 7}));
      },
      "an image of 9 x 7 cannot be halved 3 times, wanted at least 8 x 8");
}

TEST(ZooStartTest, DropoutOfAUNetIsForTrainingOnly) {
  torch::manual_seed(3);
  const auto module = unet({.filters = 2, .levels = 2, .dropout = 0.5});
  const torch::Tensor x = torch::randn({2, 3, 13, 11});
  EXPECT_FALSE(torch::equal(module->forward(x), module->forward(x)));
  module->eval();
  EXPECT_TRUE(torch::equal(module->forward(x), module->forward(x)));
}

}  // namespace
}  // namespace cohort::models::zoo_test
