// The networks of applications.h, held to what Keras and torchvision answer (applications_facts.py).
#include "cohort/train/applications.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <sstream>

#include "cohort/error.h"
#include "cohort/train.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/wings/functional/train/applications_facts.h"
#include "wings/functional/train/applications/picture_layers.h"
#include "wings/functional/train/applications/vision_transformer.h"

namespace cohort::applications_test {
namespace {

using nlohmann::json;
using testing::drawn;
using testing::expect_error;
using testing::expect_few;
using testing::facts;
using testing::TemporaryFolder;
using namespace applications;

torch::Tensor pictures(const json& size) {
  return drawn("picture", {2, 3, size[0], size[1]});
}

template <typename Options>
Options options_of(const json& golden, Form form) {
  Options options;
  const json& given = golden.at("options");
  options.input_shape = {3, golden.at("size")[0], golden.at("size")[1]};
  options.include_top = given.value("include_top", true);
  options.pooling = given.value("pooling", "");
  options.classes = given.value("classes", given.value("num_classes", int64_t{1000}));
  options.form = form;
  options.dtype = torch::kDouble;
  if (form == Form::kTorchvision) options.classifier_activation = Activation::kLinear;
  return options;
}

Application mobilenet(const std::string& network, const json& golden, Form form, const std::filesystem::path& weights) {
  const json& given = golden.at("options");
  const double alpha = given.value("alpha", given.value("width_mult", 1.0));
  if (network == "mobilenet") {
    const auto common = options_of<ApplicationOptions>(golden, form);
    return MobileNet({.input_shape = common.input_shape,
                      .alpha = alpha,
                      .include_top = common.include_top,
                      .pooling = common.pooling,
                      .classes = common.classes,
                      .dtype = common.dtype});
  }
  if (network == "mobilenetv2") {
    auto options = options_of<MobileNetV2Options>(golden, form);
    options.alpha = alpha;
    options.weights = weights;
    return MobileNetV2(options);
  }
  auto options = options_of<MobileNetV3Options>(golden, form);
  options.alpha = alpha;
  options.weights = weights;
  options.minimalistic = given.value("minimalistic", false);
  if (given.contains("include_preprocessing")) options.include_preprocessing = given.at("include_preprocessing");
  return network == "mobilenetv3small" ? MobileNetV3Small(options) : MobileNetV3Large(options);
}

Application made(const json& golden, Form form, const std::filesystem::path& weights = {}) {
  static const std::map<std::string, Application (*)(const ApplicationOptions&)> kNetworks = {
      {"resnet18", ResNet18},
      {"resnet50v2", ResNet50V2},
      {"resnet101v2", ResNet101V2},
      {"resnet152v2", ResNet152V2},
      {"vgg16", VGG16},
      {"vgg19", VGG19},
      {"densenet121", DenseNet121},
      {"densenet169", DenseNet169},
      {"densenet201", DenseNet201},
      {"resnet50", ResNet50},
      {"resnet101", ResNet101},
      {"resnet152", ResNet152},
      {"efficientnetb0", EfficientNetB0},
      {"efficientnetb1", EfficientNetB1},
      {"efficientnetb2", EfficientNetB2},
      {"efficientnetb3", EfficientNetB3},
      {"efficientnetb4", EfficientNetB4},
      {"efficientnetb5", EfficientNetB5},
      {"efficientnetb6", EfficientNetB6},
      {"efficientnetb7", EfficientNetB7}};
  std::string network;  // "mobilenet_v3_small" and "MobileNetV3Small" are the same
  for (const char letter : golden.at("network").get<std::string>()) {
    if (letter != '_') network += static_cast<char>(std::tolower(letter));
  }
  if (network == "visiontransformer") {
    const int64_t size = golden.at("size")[0];
    return make_vision_transformer("ViT", {.patch = 16, .layers = 2, .heads = 4, .hidden = 32, .mlp = 64},
                                   {.input_shape = {3, size, size},
                                    .weights = weights,
                                    .classes = 10,
                                    .classifier_activation = Activation::kLinear,
                                    .dtype = torch::kDouble});
  }
  if (network.starts_with("mobile")) return mobilenet(network, golden, form, weights);
  auto options = options_of<ApplicationOptions>(golden, form);
  options.weights = weights;
  if (network == "vgg19" && form == Form::kTorchvision) {
    options.include_top = false;
    options.pooling = "avg";
  }
  return kNetworks.at(network)(options);
}

std::vector<std::string> lines_of(const Model& model) {
  std::vector<std::string> lines;
  for (const ModelLayer& layer : model.layers()) {
    std::string shape;
    const Shape sizes = layer.output_shape().value();
    for (const int64_t size : sizes) shape += (shape.empty() ? "" : "x") + std::to_string(size);
    lines.push_back(layer.name() + " " + shape + " " + std::to_string(layer.count_params()));
  }
  return lines;
}

void set_drawn(const Model& model) {
  NamedTensors weights = model.weights();
  for (auto& [name, tensor] : weights) tensor = drawn(name, tensor.sizes().vec()).to(tensor.scalar_type());
  model.set_weights(weights);
}

TEST(Applications, AreThoseOfKeras) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const json keras = facts("keras");
  for (const json& golden : keras.at("cases")) {
    SCOPED_TRACE(golden.at("network").get<std::string>() + " " + golden.at("options").dump());
    const Application model = made(golden, Form::kKeras);
    std::string name = golden.at("name");
    std::replace(name.begin(), name.end(), '.', '_');  // names of layers have no dots
    EXPECT_EQ(model.name(), name);
    EXPECT_EQ(model.count_params(), golden.at("parameters"));
    if (golden.contains("layers")) {
      EXPECT_EQ(lines_of(model), golden.at("layers").get<std::vector<std::string>>());
    }
    if (!golden.contains("output")) continue;
    set_drawn(model);
    expect_few(model(pictures(golden.at("size"))), golden.at("output"));
  }
}

// Writes the weights that the facts' network of torchvision had.
void write_state(const json& golden, const std::filesystem::path& file) {
  NamedTensors state;
  for (const std::string line : golden.at("state")) {
    const std::size_t space = line.find(' ');
    std::vector<int64_t> shape;
    std::istringstream sizes(line.substr(space + 1));
    for (std::string size; std::getline(sizes, size, 'x');) shape.push_back(std::stoll(size));
    const std::string name = line.substr(0, space);
    state.emplace_back(name, drawn(name, shape));
    if (!name.ends_with("running_var")) continue;
    state.emplace_back(name.substr(0, name.rfind('.')) + ".num_batches_tracked", torch::zeros({}, torch::kLong));
  }
  save_weights(file, state);
}

TEST(Applications, TakeTorchvisionsFiles) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const TemporaryFolder folder;
  const json theirs = facts("torchvision");
  for (const json& golden : theirs.at("cases")) {
    SCOPED_TRACE(golden.at("network").get<std::string>() + " " + golden.at("options").dump());
    write_state(golden, folder / "weights.safetensors");
    const Application model = made(golden, Form::kTorchvision, folder / "weights.safetensors");
    EXPECT_EQ(model.form(), Form::kTorchvision);
    EXPECT_EQ(model.loaded().read.size(), model.module().state().size());
    EXPECT_TRUE(model.loaded().unused.empty());
    EXPECT_TRUE(model.loaded().missing.empty());
    expect_few(model(pictures(golden.at("size"))), golden.at("output"));
  }
}

TEST(Applications, TransformersAreThoseOfTorchvision) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const json parameters = facts("torchvision").at("parameters");
  const auto count = [](const Model& model) {
    int64_t elements = 0;
    for (const torch::Tensor& each : model.trainable_variables()) elements += each.numel();
    return elements;
  };
  EXPECT_EQ(count(ViTB16()), parameters.at("vit_b_16"));
  EXPECT_EQ(count(ViTB32()), parameters.at("vit_b_32"));
  EXPECT_EQ(count(ResNet34()), parameters.at("resnet34"));

  const TransformerSize small = {.patch = 16, .layers = 1, .heads = 2, .hidden = 8, .mlp = 16};
  const torch::Tensor x = drawn("picture", {2, 3, 32, 48}).to(torch::kFloat);
  const auto features = [&](const std::string& pooling) {
    torch::manual_seed(1);
    const Application model =
        make_vision_transformer("ViT", small, {.input_shape = {3, 32, 48}, .include_top = false, .pooling = pooling});
    return model(x);
  };
  const torch::Tensor tokens = features("");
  EXPECT_EQ(tokens.sizes(), (std::vector<int64_t>{2, 7, 8}));
  EXPECT_TRUE(torch::equal(features("token"), tokens.select(1, 0)));
  expect_error<InvalidArgument>([&] { features("avg"); }, "wanted \"token\", or nothing");
  expect_error<InvalidArgument>([] { ViTB16({.input_shape = {3, 224, 230}}); }, "in patches of 16 x 16");
  expect_error<InvalidArgument>([] { ResNet18({.form = Form::kKeras}); }, "Keras has no such network");
}

TEST(Applications, SayWhatTheyReadAndRefuseWhatDoesNotFit) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const TemporaryFolder folder;
  const auto file = folder / "net.safetensors";
  const json golden = facts("torchvision").at("cases")[1];
  write_state(golden, file);
  const Application base = MobileNetV2({.include_top = false, .pooling = "avg", .weights = file});
  EXPECT_EQ(base.loaded().unused, (std::vector<std::string>{"classifier.1.bias", "classifier.1.weight"}));
  EXPECT_EQ(base.loaded().file, file);
  EXPECT_EQ(base.loaded().read.front(), "Conv1.weight");
  EXPECT_EQ(base(torch::zeros({1, 3, 64, 32})).sizes(), (std::vector<int64_t>{1, 1280})) << "of any size";

  NamedTensors state = load_weights(file).tensors;
  std::erase_if(state, [](const auto& item) { return item.first.ends_with("num_batches_tracked"); });
  save_weights(file, state);
  const Application old = MobileNetV2({.include_top = false, .weights = file});
  ASSERT_EQ(old.loaded().missing.size(), 52u);
  EXPECT_EQ(old.loaded().missing.front(), "bn_Conv1.num_batches_tracked");

  expect_error<InvalidArgument>(
      [&] { MobileNetV2({.weights = file}); },
      "\"classifier.1.weight\" is double [10, 1280], wanted float [1000, 1280] for predictions.weight");
  expect_error<InvalidArgument>([&] { MobileNetV2({.weights = file, .form = Form::kKeras}); }, "form is kKeras");
  expect_error<InvalidArgument>([&] { ResNet50({.weights = file}); }, "there is no \"layer1.0.conv3.weight\"");
  expect_error<InvalidArgument>([&] { ResNet50({.weights = "net.weights.h5"}); }, "saved as safetensors");
  expect_error<NotFound>([&] { ResNet50({.weights = folder / "none.safetensors"}); }, "none.safetensors");
  std::erase_if(state, [](const auto& item) { return item.first == "features.18.1.bias"; });
  save_weights(file, state);
  expect_error<NotFound>([&] { MobileNetV2({.include_top = false, .weights = file}); },
                         "there is no \"features.18.1.bias\", which is Conv_1_bn.bias of the model");
  for (auto& [name, tensor] : state) {
    if (name == "features.18.0.weight") tensor = tensor.to(torch::kChar);
  }
  save_weights(file, state);
  expect_error<InvalidArgument>([&] { MobileNetV2({.include_top = false, .weights = file}); },
                                "\"features.18.0.weight\" is signed char [1280, 320, 1, 1], wanted float");
  testing::write_file(file, "no weights");
  expect_error<DataLoss>([&] { MobileNetV2({.weights = file}); }, file.string());
  expect_error<InvalidArgument>([] { ResNet50({.input_shape = {3, -1, 64}}); }, "input_shape is [3, ?, 64]");
  expect_error<InvalidArgument>(
      [] {
        ResNet50({.input_shape = {3, 31, 64}, .include_top = false});
      },
      "32 x 32 or more");
  expect_error<InvalidArgument>([] { ResNet50({.pooling = "avg"}); }, "include_top = false");
  expect_error<InvalidArgument>([] { ResNet50({.include_top = false, .pooling = "sum"}); }, "pooling is \"sum\"");
  expect_error<InvalidArgument>([] { ResNet50({.classes = 0}); }, "classes is 0");
  expect_error<InvalidArgument>([] { MobileNetV2({.alpha = 0.0}); }, "alpha is 0");
  expect_error<InvalidArgument>([] { MobileNet({.alpha = 0.01}); }, "which leaves none of 32 channels");
  expect_error<InvalidArgument>([&] { ResNet50V2({.weights = file}); }, "torchvision has no such network");
  expect_error<InvalidArgument>([] { ResNet50V2({.form = Form::kTorchvision}); }, "form is kTorchvision, but");
  expect_error<InvalidArgument>([] { MobileNetV3Small({.minimalistic = true, .form = Form::kTorchvision}); },
                                "minimalistic goes with Keras' form");
  expect_error<InvalidArgument>([] { MobileNetV3Small({.include_preprocessing = true, .form = Form::kTorchvision}); },
                                "include_preprocessing goes with Keras' form");
  expect_error<InvalidArgument>([] { MobileNetV3Large({.dropout_rate = 1.0}); }, "rate must be in [0, 1)");
}

// The transfer-learning guide of Keras: a frozen base, a new head, then the last ten layers, too.
TEST(Applications, LastLayersLearnAlone) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const Application base = MobileNetV2({.input_shape = {3, 32, 32}, .alpha = 0.35, .include_top = false});
  set_drawn(base);
  base.set_trainable(false);
  const SymbolicTensor input = Input({3, 32, 32});
  const SymbolicTensor x = base(mobilenet_v2::preprocess_input(input), {.training = false});
  Functional model(input, Dense(1)(GlobalAveragePooling2D()(x)));
  const auto fit = [&](double rate, int64_t from, int64_t to) {
    model.compile({.optimizer = Adam({.learning_rate = rate}), .loss = BinaryCrossentropy({.from_logits = true})});
    (void)model.fit(drawn("x", {8, 3, 32, 32}).to(torch::kFloat) * 255,
                    torch::arange(8).remainder(2).view({8, 1}).to(torch::kFloat),
                    {.epochs = to, .initial_epoch = from, .verbose = Verbose::kSilent, .batch_size = 4});
  };
  const auto changed = [&](const NamedTensors& before) {
    std::set<std::string> layers;
    const NamedTensors after = base.weights();
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!torch::equal(before[i].second, after[i].second)) layers.insert(after[i].first);
    }
    return layers;
  };
  NamedTensors before = base.weights();
  fit(1e-3, 0, 2);
  EXPECT_TRUE(changed(before).empty()) << "statistics, too";
  EXPECT_EQ(model.trainable_variables().size(), 2u);

  base.set_trainable(true);
  const std::vector<ModelLayer> layers = base.layers();
  for (std::size_t i = 0; i + 10 < layers.size(); ++i) layers[i].set_trainable(false);
  EXPECT_EQ(layers[layers.size() - 10].name(), "block_16_expand_BN") << "as in Keras' list";
  before = base.weights();
  fit(1e-4, 2, 3);
  EXPECT_EQ(changed(before),
            (std::set<std::string>{"block_16_expand_BN.weight", "block_16_expand_BN.bias", "block_16_depthwise.weight",
                                   "block_16_depthwise_BN.weight", "block_16_depthwise_BN.bias",
                                   "block_16_project.weight", "block_16_project_BN.weight", "block_16_project_BN.bias",
                                   "Conv_1.weight", "Conv_1_bn.weight", "Conv_1_bn.bias"}))
      << "the call keeps to inference: no statistics";
  std::ostringstream summary;
  model.summary(summary);
  int64_t learning = 0;
  for (const torch::Tensor& each : model.trainable_variables()) learning += each.numel();
  std::ostringstream base_summary;
  base.summary(base_summary);
  EXPECT_EQ(learning, 2 * 336 + 336 * 9 + 2 * 336 + 336 * 112 + 2 * 112 + 112 * 1280 + 2 * 1280 + 1281);
  EXPECT_NE(base_summary.str().find("Trainable params: 188,144"), std::string::npos) << base_summary.str();
  EXPECT_NE(summary.str().find("Trainable params: 189,425"), std::string::npos) << summary.str();
}

TEST(Applications, BlocksAreDroppedForWholeExamples) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const Application model = EfficientNetB0({.input_shape = {3, 32, 32}, .include_top = false});
  EXPECT_EQ(model.layer("block7a_project_bn").type(), "BatchNormalization");
  EXPECT_EQ(model.layer("block6d_drop").type(), "Dropout");
  const SymbolicTensor input = Input({2, 3, 4});
  const Functional drops(input, example_dropout_layer(0.25, "drop")(input));
  const torch::Tensor x = torch::ones({400, 2, 3, 4});
  EXPECT_TRUE(torch::equal(drops(x), x));
  const torch::Tensor y = drops(x, {.training = true}).view({400, -1});
  const torch::Tensor first = y.slice(1, 0, 1);
  EXPECT_TRUE(torch::equal(y, first.expand_as(y)));
  const int64_t kept = first.count_nonzero().item<int64_t>();
  EXPECT_TRUE(torch::allclose(y.sum(), torch::tensor(static_cast<double>(kept) * 24 / 0.75).to(torch::kFloat)));
  EXPECT_NEAR(static_cast<double>(kept), 300.0, 45.0);
}

}  // namespace
}  // namespace cohort::applications_test
