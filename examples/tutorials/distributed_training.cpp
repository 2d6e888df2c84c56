// Keras' guide "Multi-GPU and distributed training with TensorFlow", cell by cell: one host with several devices, and a
// training that goes on from its last checkpoint. Usage: example_distributed_training [FOLDER], a folder with the files
// of MNIST; without it on digits that it draws. Ends with the accuracy on the test examples, above 0.97 on
// MNIST and above 0.9 on drawn digits.
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>

#include "cohort/cohort.h"

namespace {

using namespace cohort;

Model get_compiled_model() {
  const SymbolicTensor inputs = Input({784});
  SymbolicTensor x = Dense(256, "relu")(inputs);
  x = Dense(256, "relu")(x);
  Functional model({inputs}, {Dense(10)(x)});
  model.compile({.optimizer = Adam(),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy()}});
  return model;
}

struct Datasets {
  Dataset train, validation, test;
};

Datasets get_dataset(const datasets::TrainTest& digits, int64_t num_val_samples) {
  constexpr int64_t kBatchSize = 64;
  const auto flat = [](Example each) {
    each.x = each.x.flatten();
    return each;
  };
  const int64_t kept = digits.train.cardinality() - num_val_samples;
  const Dataset train = digits.train.map(flat);
  return {train.take(kept).cache().shuffle(kept).batch(kBatchSize).prefetch(2), train.skip(kept).batch(kBatchSize),
          digits.test.map(flat).batch(kBatchSize)};
}

// Trains until the given epoch, from the backup that the run before has left.
double run_training(const std::filesystem::path& checkpoint_dir, const Datasets& data, int64_t epochs) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  Model model = get_compiled_model();
  const History history = model.fit(
      data.train, {.epochs = epochs,
                   .validation_data = data.validation,
                   .callbacks = {BackupAndRestore({.directory = checkpoint_dir, .delete_checkpoint = false})}});
  std::printf("Epochs of this run: %zu\n", history["loss"].size());
  return model.evaluate(data.test)["sparse_categorical_accuracy"];
}

}  // namespace

int main(int argc, char** argv) {
  torch::manual_seed(1);
  const Datasets data = argc > 1 ? get_dataset(datasets::mnist(argv[1]), 10'000)
                                 : get_dataset(datasets::drawn_digits({.train_size = 10'000, .test_size = 500}), 500);
  {
    const MirroredStrategy strategy({.devices = cpu_devices(2)});
    std::printf("Number of devices: %d\n", strategy.num_replicas_in_sync());
    const auto scope = strategy.scope();
    Model model = get_compiled_model();
    model.fit(data.train, {.epochs = 2, .validation_data = data.validation});
    model.evaluate(data.test);
  }
  const std::filesystem::path checkpoint_dir = std::filesystem::temp_directory_path() / "cohort_distributed_training";
  std::filesystem::remove_all(checkpoint_dir);
  run_training(checkpoint_dir, data, 2);
  const double accuracy = run_training(checkpoint_dir, data, 4);
  std::error_code still_used;
  std::filesystem::remove_all(checkpoint_dir, still_used);
  std::printf("Accuracy: %.3f\n", accuracy);
  return accuracy > (argc > 1 ? 0.97 : 0.9) ? 0 : 1;
}
