// These tests are about what leaves a card and comes back to it (weights, optimizers, checkpoints), and about mixed
// precision, which only GPUs have.
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "tests/gpu/cards.h"
#include "tests/gpu/programs.h"
#include "tests/support/files.h"

namespace cohort::state_test {
namespace {

using namespace gpu;

using cohort::testing::TemporaryFolder;

struct Trained {
  NamedTensors weights;
  std::vector<double> losses;
};

Trained train(const Strategy& strategy, int64_t epochs, const std::filesystem::path& backups = {}) {
  strategy.set_seed(5);
  const auto scope = strategy.scope();
  Sequential model = small_model(Adam({.learning_rate = 0.01}));
  FitOptions options{.epochs = epochs, .verbose = Verbose::kSilent};
  if (!backups.empty()) {
    options.callbacks.push_back(BackupAndRestore({.directory = backups, .delete_checkpoint = false}));
  }
  const History history = model.fit(batches_of_waves(48), options);
  return {model.weights(), history["loss"]};
}

TEST(CardState, ARunThatIsTakenUpAgainHasTheSameBits) {
  COHORT_NEEDS_CARDS(1);
  for (const auto& devices : {on_cards(1), parts_of_one_card()}) {
    const TemporaryFolder folder;
    const Strategy strategy = MirroredStrategy({.devices = devices});
    const Trained whole = train(strategy, 4);
    train(strategy, 2, folder / "cut");
    const Trained resumed = train(strategy, 4, folder / "cut");
    EXPECT_EQ(resumed.losses.back(), whole.losses.back());
    for (std::size_t i = 0; i < whole.weights.size(); ++i) {
      EXPECT_TRUE(torch::equal(whole.weights[i].second.cpu(), resumed.weights[i].second.cpu()))
          << whole.weights[i].first;
    }
  }
}

TEST(CardState, ACheckpointOfACardIsReadOnTheCpuAndBack) {
  COHORT_NEEDS_CARDS(1);
  const TemporaryFolder folder;
  const torch::Device card = find_logical_device(on_cards(1)[0]).torch_device;
  const std::vector<torch::ScalarType> dtypes{torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16,
                                              torch::kLong};
  NamedTensors tensors;
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    tensors.emplace_back("t" + std::to_string(i), (torch::arange(40) - 20).view({8, 5}).to(dtypes[i]).to(card).t());
  }
  save_checkpoint(folder / "one", 7, {.tensors = {{"model", tensors}}});
  const SavedCheckpoint back = read_checkpoint(folder / "one");
  const NamedTensors& read = back.data.tensors.at("model");
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& [name, tensor] : read) {
    const auto written =
        std::find_if(tensors.begin(), tensors.end(), [&](const auto& each) { return each.first == name; });
    ASSERT_NE(written, tensors.end()) << name;
    EXPECT_TRUE(tensor.device().is_cpu());
    EXPECT_TRUE(torch::equal(tensor, written->second.cpu())) << name;
  }

  const auto file = folder / "weights.safetensors";
  torch::Tensor there;
  {
    const Strategy strategy = OneDeviceStrategy(on_cards(1)[0]);
    const auto scope = strategy.scope();
    Sequential model = small_model(Adam({.learning_rate = 0.01}));
    model.fit(batches_of_waves(48), {.epochs = 1, .verbose = Verbose::kSilent});
    model.save_weights(file);
    there = model.predict(batches_of_waves(48).take(1)).cpu();
  }
  for (const std::string& device : {std::string("/CPU:0"), on_cards(1)[0]}) {
    const Strategy strategy = OneDeviceStrategy(device);
    const auto scope = strategy.scope();
    Sequential model = small_model(Adam({.learning_rate = 0.01}));
    model.load_weights(file);
    EXPECT_TRUE(torch::allclose(model.predict(batches_of_waves(48).take(1)).cpu(), there, 1e-4, 1e-5)) << device;
  }
}

Trained in_precision(const std::vector<std::string>& devices, PrecisionPolicy precision) {
  const Strategy strategy = MirroredStrategy({.devices = devices});
  strategy.set_seed(5);
  const auto scope = strategy.scope();
  Sequential model = small_model(Adam({.learning_rate = 0.01}), precision);
  const History history = model.fit(batches_of_waves(48), {.epochs = 6, .verbose = Verbose::kSilent});
  if (precision == PrecisionPolicy::kMixedFloat16) {
    EXPECT_GT(model.optimizer().loss_scale(), 1.0);
  }
  return {model.weights(), history["loss"]};
}

TEST(CardState, MixedPrecisionFollowsFloat32) {
  COHORT_NEEDS_CARDS(1);
  for (const auto& devices : {on_cards(1), parts_of_one_card()}) {
    const Trained exact = in_precision(devices, PrecisionPolicy::kFloat32);
    for (const PrecisionPolicy half : {PrecisionPolicy::kMixedBFloat16, PrecisionPolicy::kMixedFloat16}) {
      const Trained mixed = in_precision(devices, half);
      for (std::size_t i = 0; i < exact.losses.size(); ++i) EXPECT_NEAR(mixed.losses[i], exact.losses[i], 0.05);
      EXPECT_LT(mixed.losses.back(), mixed.losses.front());
      bool differs = false;
      for (std::size_t i = 0; i < exact.weights.size(); ++i) {
        EXPECT_EQ(mixed.weights[i].second.scalar_type(), torch::kFloat);
        EXPECT_TRUE(torch::isfinite(mixed.weights[i].second).all().item<bool>());
        differs = differs || !torch::equal(mixed.weights[i].second.cpu(), exact.weights[i].second.cpu());
      }
      // LibTorch has no rules of autocast for the stand-in, so that there only the loss scale is tried.
      EXPECT_TRUE(differs || stands_in()) << "nothing was computed in half";
    }
  }
}

}  // namespace
}  // namespace cohort::state_test
