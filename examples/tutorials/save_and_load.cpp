// TensorFlow's tutorial "Save and load a model using a distribution strategy", cell by cell: a model that goes from
// one strategy to another, and files for inference, which are run, distributed, and trained on. Usage:
// example_save_and_load [FOLDER], a folder with the files of MNIST; without it on digits that it draws. Ends with the
// accuracy of the last model on the test examples, above 0.97 on MNIST and above 0.9 on drawn digits.
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>

#include "cohort/cohort.h"

namespace {

using namespace cohort;

void compile(Model& model) {
  model.compile({.optimizer = Adam(),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
}

Sequential get_model() {
  Sequential model{Conv2D({.filters = 32, .kernel_size = 3, .activation = "relu"}), MaxPooling2D(), Flatten(),
                   Dense(64, Activation::kRelu), Dense(10)};
  model.build({1, 28, 28});
  compile(model);
  return model;
}

// Returns a model that has the model of a file as its layer (hub.KerasLayer).
Sequential build_model(const std::filesystem::path& file) {
  Sequential model{Wrap([file](const Shape& /*input*/) { return ScriptModule::load(file); }, "loaded")};
  model.build({1, 28, 28});
  compile(model);
  return model;
}

// A model that is a class.
struct SubclassedModel : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return dense(x) * 4; }
  torch::nn::Linear dense{register_module("dense", torch::nn::Linear(1, 1))};
};

}  // namespace

int main(int argc, char** argv) {
  torch::manual_seed(1);
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "cohort_save_and_load";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto digits =
      argc > 1 ? datasets::mnist(argv[1]) : datasets::drawn_digits({.train_size = 8'000, .test_size = 500});
  const MirroredStrategy mirrored_strategy({.devices = cpu_devices(2)});
  const int64_t batch_size = 32 * mirrored_strategy.num_replicas_in_sync();
  const auto with_channel = [](Example each) {
    each.x = each.x.unsqueeze(0);
    return each;
  };
  const Dataset train_dataset = digits.train.map(with_channel).cache().shuffle(10'000).batch(batch_size);
  const Dataset eval_dataset = digits.test.map(with_channel).batch(batch_size);
  const Dataset predict_dataset = eval_dataset.map([](const Example& each) { return Example{.x = each.x}; });
  const Example first = *eval_dataset.iterator().next();

  {
    const auto scope = mirrored_strategy.scope();
    Sequential model = get_model();
    model.fit(train_dataset, {.epochs = 2});
    save_model(model, folder / "keras_save.keras");
    export_model(model, folder / "tf_save.pt", {.example = {.x = first.x}});
  }
  // Without a strategy, and under another one.
  Model restored = load_model(folder / "keras_save.keras");
  restored.fit(train_dataset, {.epochs = 2, .steps_per_epoch = 30});
  {
    const OneDeviceStrategy another_strategy("/CPU:0");
    const auto scope = another_strategy.scope();
    Model restored_ds = load_model(folder / "keras_save.keras");
    restored_ds.fit(train_dataset, {.epochs = 2, .steps_per_epoch = 30});
  }
  // The file for inference.
  torch::jit::Module loaded = torch::jit::load((folder / "tf_save.pt").string());
  for (const Example& batch : predict_dataset.take(1)) {
    std::printf("%ld predictions\n", static_cast<long>(loaded.forward({batch.x}).toTensor().size(0)));
  }
  const MirroredStrategy another_strategy({.devices = cpu_devices(2)});
  const auto scope = another_strategy.scope();
  const Model inference_func(loaded);
  for (const GlobalBatch& batch : another_strategy.distribute(predict_dataset)) {
    const auto result = another_strategy.run([&](const Example& share) { return inference_func(share.x); }, batch);
    std::printf("%ld and %ld predictions\n", static_cast<long>(result[0].size(0)),
                static_cast<long>(result[1].size(0)));
    break;
  }
  Sequential model = build_model(folder / "tf_save.pt");
  model.fit(train_dataset, {.epochs = 2});
  const Logs logs = model.evaluate(eval_dataset);

  const Model my_model([] { return std::make_shared<SubclassedModel>(); });
  export_model(my_model, folder / "my_model.pt", {.example = {.x = torch::ones({2, 1})}});
  std::filesystem::remove_all(folder);
  return logs["accuracy"] > (argc > 1 ? 0.97 : 0.9) ? 0 : 1;
}
