// TensorFlow's tutorial "Transfer learning and fine-tuning", cell by cell: a MobileNetV2 that knows other pictures gets
// a new head for cats and dogs; then its last layers learn, too. Usage: example_images_transfer_learning [FOLDER
// [EXAMPLES [WEIGHTS]]]: a folder of pictures with one folder for each of two classes, the number of pictures that are
// taken (0: all, in 20 epochs instead of 6), torchvision's weights as safetensors. Without a folder it draws pictures.
// Without weights the base learns other drawn pictures first. Ends with the accuracy on the validation examples; on
// drawn pictures it is above 0.9.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cohort/cohort.h"

namespace {

// Draws stripes of a direction for each class, in colours and places by chance, with noise.
cohort::Dataset drawn_stripes(int64_t examples, int64_t size, const std::vector<double>& degrees) {
  const auto classes = static_cast<int64_t>(degrees.size());
  const torch::Tensor y = torch::arange(examples).remainder(classes);
  const torch::Tensor angle = torch::tensor(degrees).mul(M_PI / 180.0).index({y}).view({-1, 1, 1});
  const torch::Tensor row = torch::arange(size).view({1, -1, 1}), column = torch::arange(size).view({1, 1, -1});
  const torch::Tensor phase = 2.0 * M_PI * torch::rand({examples, 1, 1});
  const torch::Tensor waves = (0.9 * (angle.cos() * row + angle.sin() * column) + phase).sin().unsqueeze(1);
  const torch::Tensor colour = 40.0 + 60.0 * torch::rand({examples, 3, 1, 1});
  const torch::Tensor x = 127.0 + colour * waves + 10.0 * torch::randn({examples, 3, size, size});
  return cohort::Dataset::from_tensor_slices(x.clamp(0.0, 255.0).to(torch::kFloat), y);
}

// Trains a network with a head of its own on drawn pictures, in place of ImageNet's.
void pretrain(cohort::Model& base, const cohort::applications::MobileNetV2Options& options) {
  using namespace cohort;
  constexpr int64_t kSize = 32;  // small pictures teach as much here, in less time
  auto whole = options;
  whole.input_shape = {3, kSize, kSize};
  whole.include_top = true;
  whole.classes = 4;
  applications::Application network = applications::MobileNetV2(whole);
  network.compile({.optimizer = Adam({.learning_rate = 0.002}), .loss = "sparse_categorical_crossentropy"});
  const Dataset pictures = drawn_stripes(768, kSize, {0.0, 45.0, 90.0, 135.0});
  const auto scaled = [](Example each) {
    each.x = applications::torchvision::preprocess_input(each.x);
    return each;
  };
  network.fit(pictures.map(scaled).shuffle(768).batch(32), {.epochs = 6});
  NamedTensors weights = network.weights();
  std::erase_if(weights, [](const auto& item) { return item.first.starts_with("predictions."); });
  base.set_weights(weights);
}

struct Data {
  cohort::Dataset train;
  cohort::Dataset validation;
};

Data pictures(const char* folder, int64_t examples, int64_t size) {
  using namespace cohort;
  if (folder == nullptr) {
    return {drawn_stripes(256, size, {20.0, 110.0}), drawn_stripes(128, size, {20.0, 110.0})};
  }
  const auto resized = [size](Example each) {
    each.x = image::resize(each.x.permute({1, 2, 0}), size, size).permute({2, 0, 1}).contiguous();
    return each;
  };
  const auto photographs = datasets::image_folder(folder, {.held_out = 0.2});
  if (examples == 0) return {photographs.train.map(resized).cache(), photographs.test.map(resized).cache()};
  const Dataset held_out = photographs.test.shuffle(1'000, {.seed = 1, .reshuffle_each_iteration = false});
  return {photographs.train.take(examples).map(resized).cache(), held_out.take(examples / 4).map(resized).cache()};
}

// Puts a head on the frozen network, which keeps to inference.
cohort::Functional with_head(const cohort::applications::Application& base_model, int64_t size) {
  using namespace cohort;
  const Sequential data_augmentation({RandomFlip({.vertical = false}), RandomRotation({.factor = 0.02})},
                                     {.name = "data_augmentation"});
  const Layer global_average_layer = GlobalAveragePooling2D();
  const Layer prediction_layer = Dense(1, Activation::kSigmoid);
  const SymbolicTensor inputs = Input({3, size, size});
  SymbolicTensor x = data_augmentation(inputs);
  x = applications::torchvision::preprocess_input(x);
  x = base_model(x, {.training = false});
  x = global_average_layer(x);
  x = Dropout(0.2)(x);
  const SymbolicTensor outputs = prediction_layer(x);
  return {inputs, outputs};
}

void compile(cohort::Model& model, const cohort::Optimizer& optimizer) {
  using namespace cohort;
  model.compile({.optimizer = optimizer,
                 .loss = BinaryCrossentropy(),
                 .metrics = {BinaryAccuracy({.threshold = 0.5, .name = "accuracy"})}});
  model.summary();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cohort;
  torch::manual_seed(1);
  const int64_t examples = argc > 2 ? std::atoi(argv[2]) : 0;
  const int64_t size = argc > 1 ? 160 : 32;
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const auto [train, validation] = pictures(argc > 1 ? argv[1] : nullptr, examples, size);
  const auto with_float_label = [](Example each) {
    each.y = each.y.to(torch::kFloat).view({1});
    return each;
  };
  const Dataset train_dataset = train.map(with_float_label).shuffle(1'000).batch(32);
  const Dataset validation_dataset = validation.map(with_float_label).batch(32);

  const applications::MobileNetV2Options options = {.input_shape = {3, size, size},
                                                    .alpha = argc > 1 ? 1.0 : 0.35,
                                                    .include_top = false,
                                                    .weights = argc > 3 ? argv[3] : "",
                                                    .form = applications::Form::kTorchvision};
  applications::Application base_model = applications::MobileNetV2(options);
  if (options.weights.empty()) pretrain(base_model, options);

  base_model.set_trainable(false);
  Functional model = with_head(base_model, size);
  const double base_learning_rate = argc > 1 ? 0.0001 : 0.003;
  compile(model, Adam({.learning_rate = base_learning_rate}));
  const int64_t initial_epochs = examples > 0 ? 2 : 10;
  const Logs before = model.evaluate(validation_dataset);
  std::printf("initial loss: %.2f, initial accuracy: %.2f\n", before["loss"], before["accuracy"]);
  const History history = model.fit(train_dataset, {.epochs = initial_epochs, .validation_data = validation_dataset});

  base_model.set_trainable(true);
  const std::vector<ModelLayer> layers = base_model.layers();
  std::printf("Number of layers in the base model: %zu\n", layers.size());
  constexpr std::size_t kFineTuneAt = 100;
  for (std::size_t i = 0; i < kFineTuneAt; ++i) layers[i].set_trainable(false);
  compile(model, RMSprop({.learning_rate = base_learning_rate / 10}));
  const int64_t fine_tune_epochs = initial_epochs;
  const int64_t total_epochs = initial_epochs + fine_tune_epochs;
  const History history_fine = model.fit(
      train_dataset,
      {.epochs = total_epochs, .initial_epoch = history.epochs().back() + 1, .validation_data = validation_dataset});
  const double accuracy = history_fine["val_accuracy"].back();
  std::printf("Validation accuracy: %.2f\n", accuracy);
  return argc > 1 || accuracy > 0.9 ? 0 : 1;
}
