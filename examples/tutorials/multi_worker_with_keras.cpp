// TensorFlow's tutorial "Multi-worker training with Keras", cell by cell: fit() on several workers, data that each
// worker has whole, evaluation, saved models, checkpoints, backups.
//
//   cohort launch --nproc=2 -- example_multi_worker_with_keras [FOLDER [MNIST]]
//
// FOLDER is for the files that it writes. MNIST is a folder with its files; without it the digits are drawn. Ends with
// the accuracy of the workers' model, above 0.97 on MNIST and above 0.9 on drawn digits, and with that of a model that
// was restored and trained on a little, above 0.9.
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>

#include "cohort/cohort.h"

namespace {

using namespace cohort;

Dataset mnist_dataset(const Dataset& train, int64_t batch_size) {
  return train.shuffle(60'000, {.seed = 1}).repeat().batch(batch_size);
}

Sequential build_and_compile_cnn_model() {
  Sequential model{Reshape({1, 28, 28}), Conv2D({.filters = 32, .kernel_size = 3, .activation = "relu"}), Flatten(),
                   Dense(128, Activation::kRelu), Dense(10)};
  model.build({28, 28});
  model.compile({.optimizer = SGD({.learning_rate = 0.05, .momentum = 0.9}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  return model;
}

// Trains and saves a model on all workers. Returns its accuracy.
double train_and_save(const datasets::TrainTest& digits, int64_t steps_per_epoch, const std::filesystem::path& folder) {
  constexpr int64_t kPerWorkerBatchSize = 64;
  const MultiWorkerMirroredStrategy strategy({.devices = {"/CPU:0"}});  // TF_CONFIG says who is who
  const int64_t global_batch_size = kPerWorkerBatchSize * strategy.num_workers();
  const Dataset multi_worker_dataset = mnist_dataset(digits.train, global_batch_size);
  const auto scope = strategy.scope();
  Sequential multi_worker_model = build_and_compile_cnn_model();
  multi_worker_model.fit(multi_worker_dataset, {.epochs = 3, .steps_per_epoch = steps_per_epoch});

  // Each worker trains on all data, and evaluates.
  const Dataset dataset_no_auto_shard = mnist_dataset(digits.train, kPerWorkerBatchSize);
  multi_worker_model.fit(dataset_no_auto_shard,
                         {.epochs = 1, .steps_per_epoch = 20, .input = {.auto_shard = AutoShard::kOff}});
  multi_worker_model.evaluate(multi_worker_dataset, {.steps = 10});

  // All workers call it, and the chief writes.
  save_model(multi_worker_model, folder / "keras-model.keras");
  {
    Checkpoint checkpoint(strategy, folder / "ckpt", {.modules = {{"model", multi_worker_model}}},
                          {.manager = {.max_to_keep = 1}});
    checkpoint.save({.step = 3});
  }
  multi_worker_model.fit(multi_worker_dataset,
                         {.epochs = 1,
                          .steps_per_epoch = 70,
                          .callbacks = {BackupAndRestore({.directory = folder / "backup", .save_freq = 30})}});
  return multi_worker_model.evaluate(digits.test.batch(100))["accuracy"];
}

}  // namespace

int main(int argc, char** argv) {
  torch::manual_seed(1);
  const std::filesystem::path folder =
      argc > 1 ? argv[1] : std::filesystem::temp_directory_path() / "cohort_multi_worker_with_keras";
  std::filesystem::create_directories(folder);
  const bool whole = argc > 2;
  const auto digits =
      whole ? datasets::mnist(argv[2]) : datasets::drawn_digits({.train_size = 4'000, .test_size = 500});
  const double accuracy = train_and_save(digits, whole ? 234 : 70, folder);

  // Each worker by itself.
  const Dataset single_worker_dataset = mnist_dataset(digits.train, 64);
  Model loaded_model = load_model(folder / "keras-model.keras");
  loaded_model.fit(single_worker_dataset, {.epochs = 2, .steps_per_epoch = 20});

  Sequential restored_model = build_and_compile_cnn_model();
  restored_model.load_weights(folder / "ckpt" / "ckpt-3");
  restored_model.fit(single_worker_dataset, {.epochs = 2, .steps_per_epoch = 20});
  const Logs logs = restored_model.evaluate(digits.test.batch(100));
  std::printf("Accuracy of the workers: %.3f, of the restored model: %.3f\n", accuracy, logs["accuracy"]);
  return accuracy > (whole ? 0.97 : 0.9) && logs["accuracy"] > 0.9 ? 0 : 1;
}
