// The usual first program of a distribution strategy: MirroredStrategy with fit() on two devices, with a callback that
// keeps the best weights, then the same in mixed precision. Usage: example_mnist_fit [FOLDER], a folder with the files
// of MNIST; without it on digits that it draws. Ends with the accuracy of both models, above 0.97 on MNIST and above
// 0.9 on drawn digits.
#include <cstdio>
#include <filesystem>

#include "cohort/cohort.h"

namespace {

using namespace cohort;

Sequential compiled_model(PrecisionPolicy precision) {
  Sequential model{Dense(256, "relu"), Dense(128, "relu"), Dense(10, "softmax")};
  model.compile({.optimizer = "adam",
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .precision = precision});
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  torch::manual_seed(1);
  const bool whole = argc > 1;
  const auto digits =
      whole ? datasets::mnist(argv[1]) : datasets::drawn_digits({.train_size = 12'000, .test_size = 500});
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "cohort_mnist_fit";
  std::filesystem::remove_all(folder);

  std::printf("Num GPUs Available: %zu\n", list_physical_devices("GPU").size());
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  std::printf("Number of devices: %d\n", strategy.num_replicas_in_sync());
  const auto flat = [](Example each) {
    each.x = each.x.flatten();
    return each;
  };
  const int64_t batch_size = 64 * strategy.num_replicas_in_sync();
  const Dataset train_dataset = digits.train.map(flat).cache().shuffle(10'000).batch(batch_size).prefetch(kAuto);
  const Dataset test_dataset = digits.test.map(flat).batch(batch_size);

  const auto scope = strategy.scope();
  Sequential model = compiled_model(PrecisionPolicy::kFloat32);
  const CallbackPtr checkpoint_callback = ModelCheckpoint({.filepath = folder / "best.weights.h5",
                                                           .monitor = "val_accuracy",
                                                           .save_best_only = true,
                                                           .save_weights_only = true,
                                                           .verbose = true});
  model.fit(train_dataset, {.epochs = 5, .validation_data = test_dataset, .callbacks = {checkpoint_callback}});
  model.load_weights(folder / "best.weights.h5");
  const Logs best = model.evaluate(test_dataset);

  // LibTorch computes in float16 on GPUs alone.
  const bool has_gpu = strategy.worker_devices().front().torch_device.is_cuda();
  Sequential mixed = compiled_model(has_gpu ? PrecisionPolicy::kMixedFloat16 : PrecisionPolicy::kMixedBFloat16);
  mixed.fit(train_dataset, {.epochs = 5});
  const Logs logs = mixed.evaluate(test_dataset);
  std::printf("Evaluation accuracy: %.3f, in mixed precision %.3f\n", best["accuracy"], logs["accuracy"]);
  std::filesystem::remove_all(folder);
  const double wanted = whole ? 0.97 : 0.9;
  return best["accuracy"] > wanted && logs["accuracy"] > wanted ? 0 : 1;
}
