// TensorFlow's tutorial "Distributed training with Keras", cell by cell, on two devices: fit() with callbacks, the
// weights of the last checkpoint, another strategy. Usage: example_keras [FOLDER], a folder with the files of MNIST;
// without it on digits that it draws. Ends with the accuracy on the test examples, above 0.97 on MNIST and above
// 0.9 on drawn digits.
#include <cstdio>
#include <filesystem>

#include "cohort/cohort.h"

namespace {

cohort::Sequential create_model() {
  using namespace cohort;
  return {Conv2D({.filters = 32, .kernel_size = 3, .activation = "relu"}), MaxPooling2D(), Flatten(),
          Dense(64, Activation::kRelu), Dense(10)};
}

void compile(cohort::Model& model) {
  using namespace cohort;
  model.compile({.optimizer = Adam({.learning_rate = 0.001}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cohort;
  torch::manual_seed(1);
  const bool whole = argc > 1;
  const auto digits =
      whole ? datasets::mnist(argv[1]) : datasets::drawn_digits({.train_size = 20'000, .test_size = 500});
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "cohort_tutorial_keras";
  std::filesystem::remove_all(folder);

  MirroredStrategy strategy({.devices = cpu_devices(2)});
  std::printf("Number of devices: %d\n", strategy.num_replicas_in_sync());

  constexpr int64_t kBufferSize = 10'000, kBatchSizePerReplica = 64;
  const int64_t batch_size = kBatchSizePerReplica * strategy.num_replicas_in_sync();
  const auto with_channel = [](Example each) {
    each.x = each.x.unsqueeze(0);
    return each;
  };
  const Dataset train_dataset = digits.train.map(with_channel).cache().shuffle(kBufferSize).batch(batch_size);
  const Dataset eval_dataset = digits.test.map(with_channel).batch(batch_size);
  {
    const auto scope = strategy.scope();
    Sequential model = create_model();
    compile(model);

    const auto decay = [](int64_t epoch, double /*rate*/) { return epoch < 3 ? 1e-3 : epoch < 7 ? 1e-4 : 1e-5; };
    const auto print_lr = [](const RunInfo& run, Logs& logs) {
      std::printf("\nLearning rate for epoch %ld is %g\n", static_cast<long>(run.epoch + 1), logs["learning_rate"]);
    };
    const std::vector<CallbackPtr> callbacks = {
        TensorBoard({.log_dir = folder / "logs"}),
        ModelCheckpoint({.filepath = folder / "ckpt_{epoch}.safetensors", .save_weights_only = true}),
        LearningRateScheduler(decay), LambdaCallback({.on_epoch_end = print_lr})};
    const int64_t epochs = whole ? 12 : 6;
    model.fit(train_dataset, {.epochs = epochs, .callbacks = callbacks});

    model.load_weights(folder / ("ckpt_" + std::to_string(epochs) + ".safetensors"));
    const Logs logs = model.evaluate(eval_dataset);
    std::printf("Eval loss: %g, Eval accuracy: %g\n", logs["loss"], logs["accuracy"]);
    save_model(model, folder / "my_model.keras");
  }

  // The saved model without the strategy, and with it.
  Model unreplicated_model = load_model(folder / "my_model.keras");
  compile(unreplicated_model);
  const Logs unreplicated = unreplicated_model.evaluate(eval_dataset);
  std::printf("Eval loss: %g, Eval Accuracy: %g\n", unreplicated["loss"], unreplicated["accuracy"]);
  const auto scope = strategy.scope();
  Model replicated_model = load_model(folder / "my_model.keras");
  compile(replicated_model);
  const Logs logs = replicated_model.evaluate(eval_dataset);
  std::printf("Eval loss: %g, Eval Accuracy: %g\n", logs["loss"], logs["accuracy"]);
  std::filesystem::remove_all(folder);
  return logs["accuracy"] > (whole ? 0.97 : 0.9) ? 0 : 1;
}
