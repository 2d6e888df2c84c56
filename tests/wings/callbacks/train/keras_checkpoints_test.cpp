// ModelCheckpoint and save_weights() with the names of Keras' files.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/train/keras_file.h"
#include "cohort/train/layers.h"
#include "cohort/train/more_callbacks.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort {
namespace keras_checkpoints_test {
namespace {

using testing::expect_error;

Sequential small() {
  Sequential model{Dense(3, "tanh"), Dense(1)};
  model.build({4});
  model.compile({.optimizer = Adam(), .loss = "mse"});
  return model;
}

TEST(KerasCheckpoints, AreWrittenByTheirNames) {
  const testing::TemporaryFolder folder;
  const Dataset data = Dataset::from_tensor_slices(torch::randn({8, 4}), torch::randn({8, 1})).batch(4);
  const torch::Tensor x = torch::randn({3, 4});
  for (const int workers : {1, 2}) {
    const MirroredStrategy strategy({.devices = cpu_devices(workers)});
    const auto scope = strategy.scope();
    Sequential model = small();
    const std::string whole = folder / "runs" / "{epoch}.keras", weights = folder / "w-{epoch}.weights.h5";
    model.fit(data, {.epochs = 2,
                     .callbacks = {ModelCheckpoint({.filepath = whole, .verbose = true}),
                                   ModelCheckpoint({.filepath = weights, .save_weights_only = true})},
                     .verbose = Verbose::kSilent});
    Model loaded = load_model(folder / "runs" / "2.keras");
    EXPECT_TRUE(torch::equal(loaded.predict(x), model.predict(x)));
    EXPECT_EQ(loaded.optimizer().iterations(), 4);
    Sequential other = small();
    EXPECT_TRUE(other.load_weights(folder / "w-2.weights.h5").empty());
    EXPECT_TRUE(torch::equal(other.predict(x), model.predict(x)));
    EXPECT_TRUE(std::filesystem::is_regular_file(folder / "runs" / "1.keras"));
  }
}

TEST(KerasCheckpoints, NamesThatDoNotFit) {
  const testing::TemporaryFolder folder;
  const std::string whole = folder / "m.keras", weights = folder / "m.weights.h5";
  expect_error<InvalidArgument>([&] { ModelCheckpoint({.filepath = whole, .save_weights_only = true}); },
                                "save_weights_only is true");
  expect_error<InvalidArgument>([&] { ModelCheckpoint({.filepath = weights}); }, "save_weights_only is false");
  Sequential model = small();
  expect_error<InvalidArgument>([&] { model.save_weights(weights, {{"run", "1"}}); }, "metadata");
  model.save_weights(weights);
  expect_error<InvalidArgument>([&] { model.load_weights(weights, /*strict=*/false); }, "strict");
  expect_error<NotFound>([&] { model.load_weights(folder / "none.h5"); }, "none.h5");
}

}  // namespace
}  // namespace keras_checkpoints_test
}  // namespace cohort
