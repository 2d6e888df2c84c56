#include "cohort/train/model.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <sstream>

#include "cohort/error.h"
#include "cohort/more_update_rules.h"
#include "cohort/train/layers/foreign.h"
#include "tests/support/errors.h"

namespace cohort::model_test {
namespace {

using testing::expect_error;

std::vector<std::string> names(const NamedTensors& tensors) {
  std::vector<std::string> list;
  for (const auto& item : tensors) list.push_back(item.first);
  return list;
}

torch::Tensor at(const NamedTensors& tensors, const std::string& name) {
  for (const auto& item : tensors) {
    if (item.first == name) return item.second;
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

Sequential small() {
  return {Flatten(), Dense(4, Activation::kRelu), BatchNormalization(), Dense(3)};
}

CompileOptions options() {
  return {.optimizer = SGD({.learning_rate = 0.1}), .loss = SparseCategoricalCrossentropy({.from_logits = true})};
}

Example batch(int64_t size = 6) {
  return {.x = torch::randn({size, 2, 3}), .y = torch::randint(3, {size}, torch::kLong)};
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    head = register_module("head", torch::nn::Linear(4, 2));
    scale = register_parameter("scale", torch::ones(1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(norm(torch::relu(first(x)))) * scale; }
  torch::nn::Linear first{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale;
};
TORCH_MODULE(Net);

TEST(SequentialTest, JitCompileIsAnErrorWhereNothingCompiles) {
  Sequential model = small();
  CompileOptions compiled = options();
  compiled.jit_compile = true;
  expect_error<InvalidArgument>([&] { model.compile(compiled); },
                                "compile: jit_compile is true, but a replica is on cpu, where nothing is compiled");
  compiled.run_eagerly = true;
  expect_error<InvalidArgument>([&] { model.compile(compiled); },
                                "compile: jit_compile and run_eagerly are both true, wanted one of them");
  compiled.jit_compile = false;
  model.compile(compiled);
  EXPECT_TRUE(model.compiled());
}

TEST(SequentialTest, SummaryIsKerasTable) {
  Sequential model = small();
  expect_error<FailedPrecondition>([&] { model.summary(); }, "not built yet");
  model.build({2, 3});
  model.layer("dense").set_trainable(false);
  std::ostringstream text;
  model.summary(text);
  EXPECT_EQ(text.str(),
            "Model: \"sequential\"\n"
            "___________________________________________________________________\n"
            " Layer (type)                               Output Shape   Param #\n"
            "===================================================================\n"
            " flatten (Flatten)                          (None, 6)      0\n"
            " dense (Dense)                              (None, 4)      28\n"
            " batch_normalization (BatchNormalization)   (None, 4)      16\n"
            " dense_1 (Dense)                            (None, 3)      15\n"
            "===================================================================\n"
            "Total params: 59 (236.00 B)\n"
            "Trainable params: 23 (92.00 B)\n"
            "Non-trainable params: 36 (144.00 B)\n");
  EXPECT_EQ(model.count_params(), 59);
  expect_error<FailedPrecondition>([&] { model.build({2, 3}); }, "built already");
  expect_error<FailedPrecondition>([&] { model.add(Dense(1)); }, "built already");
}

TEST(SequentialTest, LayersAreAddedAndNamed) {
  Sequential model({}, {.name = "grown", .dtype = torch::kDouble});
  expect_error<FailedPrecondition>([&] { model.build({3}); }, "no layers");
  model.add(Dense(4));
  model.add(Activation(Activation::kTanh));
  model.add(Dense(2).named("head"));
  model.build({3});
  EXPECT_EQ(names(model.weights()),
            (std::vector<std::string>{"dense.weight", "dense.bias", "head.weight", "head.bias"}));
  EXPECT_EQ(model.weights()[0].second.scalar_type(), torch::kDouble);
  EXPECT_EQ(model.predict(torch::ones({5, 3})).sizes(), (torch::IntArrayRef{5, 2}));
  EXPECT_EQ(*model.layer("head").output_shape(), (Shape{2}));
  EXPECT_EQ(names(model.layer("head").weights()), (std::vector<std::string>{"weight", "bias"}));
  expect_error<NotFound>([&] { model.layer("tail"); }, "no layer \"tail\"; there are dense, activation, head");
}

TEST(SequentialTest, BuildErrorsNameTheLayer) {
  Sequential model{Dense(3), Conv2D(2, 3)};
  expect_error<InvalidArgument>([&] { model.build({7}); }, "conv2d (Conv2D)");
  EXPECT_FALSE(model.built());
  Sequential images{Conv2D(2, 3), Flatten(), Dense(1)};
  images.build({28, 28});
  expect_error<InvalidArgument>([&] { images.predict(torch::ones({2, 3, 28, 28})); }, "conv2d (Conv2D)");
}

TEST(SequentialTest, IntegersReachTheEmbedding) {
  Sequential model{Embedding(10, 4), Lambda([](const torch::Tensor& x) { return x.mean(1); }), Dense(2)};
  EXPECT_EQ(model.predict(torch::zeros({3, 5}, torch::kLong)).sizes(), (torch::IntArrayRef{3, 2}));
  Sequential first{Lambda([](const torch::Tensor& x) { return x + 1; }), Embedding(10, 4)};
  EXPECT_EQ(first.predict(torch::zeros({3, 5}, torch::kLong)).sizes(), (torch::IntArrayRef{3, 5, 4}));
}

TEST(ModelTest, WrapsAnyModule) {
  Model model([] { return Net(); });
  EXPECT_TRUE(model.built());
  std::vector<std::string> layers;
  for (const ModelLayer& layer : model.layers()) layers.push_back(layer.name() + ":" + layer.type());
  EXPECT_EQ(layers, (std::vector<std::string>{".:Net", "first:Linear", "norm:BatchNorm1d", "head:Linear"}));
  EXPECT_EQ(model.count_params(), 1 + 16 + 16 + 10);
  EXPECT_EQ(model.predict(torch::ones({5, 3})).sizes(), (torch::IntArrayRef{5, 2}));
  EXPECT_EQ(names(model.weights())[0], "scale");
  Model shared([] { return std::make_shared<NetImpl>(); });
  EXPECT_EQ(shared.predict(torch::ones({2, 3})).size(0), 2);
}

TEST(ModelTest, NeedsToBeCompiled) {
  Sequential model = small();
  const Dataset data = Dataset::from_tensor_slices(batch()).batch(2);
  expect_error<FailedPrecondition>([&] { model.fit(data); }, "fit: the model is not compiled");
  expect_error<FailedPrecondition>([&] { model.evaluate(data); }, "evaluate: the model is not compiled");
  expect_error<FailedPrecondition>([&] { model.train_on_batch(batch()); }, "not compiled");
  expect_error<FailedPrecondition>([&] { model.save_weights("w"); }, "not built");
  model.compile(options());
  expect_error<FailedPrecondition>([&] { model.optimizer(); }, "not built");
}

TEST(ModelTest, BelongsToItsStrategy) {
  const OneDeviceStrategy one("/CPU:0");
  Sequential model = [&] {
    const auto scope = one.scope();
    return small();
  }();
  EXPECT_EQ(model.strategy().name(), one.name());
  const MirroredStrategy other({.devices = cpu_devices(2)});
  const auto scope = other.scope();
  expect_error<FailedPrecondition>([&] { model.compile(options()); }, "another strategy");
}

TEST(ModelTest, FrozenLayersStayAsTheyAre) {
  torch::manual_seed(1);
  Sequential model = small();
  model.layer("dense").set_trainable(false);
  model.layer("batch_normalization").set_trainable(false);
  model.compile(options());
  model.build({2, 3});
  const NamedTensors before = model.weights();
  model.train_on_batch(batch());
  NamedTensors after = model.weights();
  for (const char* name : {"dense.weight", "dense.bias", "batch_normalization.weight",
                           "batch_normalization.running_mean", "batch_normalization.running_var"}) {
    EXPECT_TRUE(torch::equal(at(before, name), at(after, name))) << name;
  }
  EXPECT_FALSE(torch::equal(at(before, "dense_1.weight"), at(after, "dense_1.weight")));
  EXPECT_EQ(model.optimizer().parameter_names(), (std::vector<std::string>{"dense_1.weight", "dense_1.bias"}));

  model.set_trainable(true);
  model.train_on_batch(batch());  // not before the next compile()
  EXPECT_TRUE(torch::equal(at(before, "dense.weight"), at(model.weights(), "dense.weight")));
  model.compile(options());
  model.train_on_batch(batch());
  after = model.weights();
  for (const char* name : {"dense.weight", "batch_normalization.weight", "batch_normalization.running_mean"}) {
    EXPECT_FALSE(torch::equal(at(before, name), at(after, name))) << name;
  }
}

TEST(ModelTest, FrozenChildrenOfModulesToo) {
  torch::manual_seed(1);
  Model model([] {
    Net net;
    net->head->bias.set_requires_grad(false);  // the user's own doing stays
    return net;
  });
  model.layer("norm").set_trainable(false);
  model.layer(".").set_trainable(false);
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = MeanSquaredError()});
  const NamedTensors before = model.weights();
  const Example examples{.x = torch::randn({4, 3}), .y = torch::randn({4, 2})};
  model.train_on_batch(examples);
  for (const char* name : {"scale", "norm.weight", "norm.running_mean", "head.bias"}) {
    EXPECT_TRUE(torch::equal(at(before, name), at(model.weights(), name))) << name;
  }
  EXPECT_FALSE(torch::equal(at(before, "first.weight"), at(model.weights(), "first.weight")));
  model.set_trainable(true);
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = MeanSquaredError()});
  model.train_on_batch(examples);
  for (const char* name : {"scale", "norm.weight", "norm.running_mean"}) {
    EXPECT_FALSE(torch::equal(at(before, name), at(model.weights(), name))) << name;
  }
  EXPECT_TRUE(torch::equal(at(before, "head.bias"), at(model.weights(), "head.bias")));
}

TEST(ModelTest, LayersCanBeFrozenFromTheStart) {
  Sequential model{Dense({.units = 4, .trainable = false}), Dense(3)};
  model.compile(options());
  model.build({3});
  EXPECT_EQ(model.optimizer().parameter_names(), (std::vector<std::string>{"dense_1.weight", "dense_1.bias"}));
  model.layers()[1].set_trainable(false);
  model.compile(options());
  expect_error<FailedPrecondition>([&] { model.optimizer(); }, "no parameter that requires a gradient");
}

class WeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("cohort_model_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(WeightsTest, GoThroughAFile) {
  torch::manual_seed(1);
  Sequential one = small(), two = small();
  one.build({2, 3});
  two.build({2, 3});
  one.save_weights(folder_ / "w.safetensors", {{"step", "7"}});
  expect_error<FailedPrecondition>([&] { small().load_weights(folder_ / "w.safetensors"); }, "not built");
  const auto metadata = two.load_weights(folder_ / "w.safetensors");
  EXPECT_EQ(metadata.at("step"), "7");
  const torch::Tensor x = torch::randn({3, 2, 3});
  EXPECT_TRUE(torch::equal(one.predict(x), two.predict(x)));

  Sequential other{Flatten(), Dense(4).named("first"), Dense(3)};
  other.build({2, 3});
  expect_error<NotFound>([&] { other.load_weights(folder_ / "w.safetensors"); }, "w.safetensors: ");
  Sequential wide{Flatten(), Dense(5), BatchNormalization(), Dense(3)};
  wide.build({2, 3});
  expect_error<InvalidArgument>([&] { wide.load_weights(folder_ / "w.safetensors"); }, "dense.weight");
  expect_error<NotFound>([&] { two.load_weights(folder_ / "none.safetensors"); }, "none.safetensors");
}

TEST_F(WeightsTest, KnowHowLongTheyWereTrained) {
  Sequential one = small(), two = small();
  one.compile(options());
  two.compile(options());
  const Dataset data = Dataset::from_tensor_slices(batch()).batch(2);
  one.fit(data, {.epochs = 2, .verbose = Verbose::kSilent});
  one.save_weights(folder_ / "w.safetensors");
  two.build({2, 3});
  EXPECT_EQ(two.load_weights(folder_ / "w.safetensors").at("step"), "6");
  const CallbackPtr look = LambdaCallback({.on_test_end = [](const RunInfo& run, const Logs&) {
    EXPECT_EQ(run.step, 6);
    EXPECT_EQ(run.epochs, 2);
  }});
  two.evaluate(data, {.callbacks = {look}, .verbose = Verbose::kSilent});
}

TEST_F(WeightsTest, CanBeSetInPart) {
  Sequential model = small();
  model.build({2, 3});
  const NamedTensors before = model.weights();
  model.set_weights({{"dense.bias", torch::ones(4)}}, /*strict=*/false);
  EXPECT_TRUE(torch::equal(at(model.weights(), "dense.bias"), torch::ones(4)));
  EXPECT_TRUE(torch::equal(at(model.weights(), "dense.weight"), at(before, "dense.weight")));
  EXPECT_THROW(model.set_weights({{"dense.bias", torch::ones(4)}}), NotFound);
}

TEST_F(WeightsTest, AreCopies) {
  Sequential model = small();
  model.build({2, 3});
  const NamedTensors before = model.weights();
  before[0].second.zero_();
  EXPECT_GT(model.weights()[0].second.abs().sum().item<double>(), 0.0);
  model.set_weights(before);
  EXPECT_EQ(model.weights()[0].second.abs().sum().item<double>(), 0.0);
}

TEST(ModelTest, UnbatchedAndEmptyDataAreRefused) {
  Sequential model = small();
  model.compile(options());
  const Dataset examples = Dataset::from_tensor_slices(batch());
  expect_error<InvalidArgument>([&] { model.fit(examples); }, "batch(");
  expect_error<InvalidArgument>([&] { model.predict(examples); }, "batch(");
  expect_error<InvalidArgument>([&] { model.fit(examples.batch(2).take(0)); }, "the dataset is empty");
  expect_error<InvalidArgument>([&] { model.evaluate(examples.batch(2).take(0), {.verbose = Verbose::kSilent}); },
                                "empty");
  expect_error<InvalidArgument>([&] { model.predict(examples.batch(2).take(0)); }, "empty");
  expect_error<InvalidArgument>([&] { model.fit(examples.batch(2).repeat()); }, "set steps_per_epoch");
  expect_error<InvalidArgument>([&] { model.fit(examples.batch(2), {.epochs = -1}); }, "epochs must not be negative");
  expect_error<InvalidArgument>([&] { model.fit(examples.batch(2), {.callbacks = {nullptr}}); }, "null");
  expect_error<InvalidArgument>(
      [&] {
        model.fit(Dataset::from_tensor_slices(torch::ones({4, 2, 3})).batch(2), {.verbose = Verbose::kSilent});
      },
      "no target y");
}

TEST(ModelTest, WrongOutputsAreNamed) {
  Model model([] { return torch::nn::Flatten(torch::nn::FlattenOptions().start_dim(0)); });
  expect_error<InvalidArgument>([&] { model.predict(torch::ones({4, 3})); }, "the output of 4 examples has shape [12]");
}

// Weights after three steps.
NamedTensors trained(const CompileOptions& options, const Layer& last, const Example& batch) {
  torch::manual_seed(5);
  Sequential model({Flatten(), Dense(3), last});
  model.build({2, 3});
  model.compile(options);
  for (int step = 0; step < 3; ++step) model.train_on_batch(batch);
  return model.weights();
}

void expect_same(const CompileOptions& named, const CompileOptions& made, const Layer& last, const Example& batch) {
  const NamedTensors one = trained(named, last, batch), two = trained(made, last, batch);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(torch::equal(one[i].second, two[i].second)) << one[i].first;
}

TEST(CompileTest, NamesAreKerasAndMeanTheFunctions) {
  torch::manual_seed(1);
  const Example classes = batch();
  const Layer softmax = Activation(Activation::kSoftmax);
  const std::vector<std::pair<const char*, Optimizer>> optimizers = {
      {"adam", Adam()}, {"SGD", SGD()},   {"adamw", AdamW()},        {"RMSprop", RMSprop()}, {"adagrad", Adagrad()},
      {"lamb", LAMB()}, {"lars", LARS()}, {"adadelta", Adadelta()},  {"adamax", Adamax()},   {"nadam", Nadam()},
      {"ftrl", Ftrl()}, {"lion", Lion()}, {"adafactor", Adafactor()}};
  for (const auto& [name, optimizer] : optimizers) {
    EXPECT_EQ(Optimizer(name).name(), optimizer.name());
    expect_same({.optimizer = name, .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}},
                {.optimizer = optimizer, .loss = SparseCategoricalCrossentropy()}, softmax, classes);
  }
  const Example values{.x = classes.x, .y = torch::rand({classes.x.size(0), 3})};
  const std::vector<std::pair<const char*, Loss>> losses = {{"mse", MeanSquaredError()},
                                                            {"MeanAbsoluteError", MeanAbsoluteError()},
                                                            {"huber", Huber()},
                                                            {"BinaryCrossentropy", BinaryCrossentropy()},
                                                            {"categorical_crossentropy", CategoricalCrossentropy()}};
  for (const auto& [name, loss] : losses) {
    EXPECT_EQ(Loss(name).name(), loss.name());
    expect_same({.optimizer = "sgd", .loss = name}, {.optimizer = SGD(), .loss = loss}, softmax, values);
  }
}

TEST(CompileTest, UnknownNamesListTheKnownOnes) {
  expect_error<NotFound>([] { const Optimizer unknown = "adma"; },
                         "[optimizer] there is no optimizer \"adma\"; there are sgd, adam, adamw");
  expect_error<NotFound>([] { const Loss unknown = "crossentropy"; },
                         "[losses] there is no loss \"crossentropy\"; there are binary_crossentropy");
  expect_error<NotFound>([] { const Metric unknown = "acuracy"; },
                         "[metrics] there is no metric \"acuracy\"; there are accuracy");
}

}  // namespace
}  // namespace cohort::model_test
