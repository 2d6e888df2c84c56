// .keras files: what is written is read again, and what is damaged or hostile is refused.
#include "cohort/train/keras_file.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cohort/error.h"
#include "cohort/train/layers.h"
#include "tests/golden/golden.h"
#include "tests/support/files.h"

namespace cohort::testing::keras_file_test {
namespace {

std::filesystem::path facts() {
  return golden_folder() / ".." / "facts" / "keras" / "models";
}

// Returns a layer of images, or one with their channels last.
Layer placed(bool last, const Layer& layer) {
  return last ? ChannelsLast(layer) : layer;
}

Sequential images(bool last) {
  const auto of = [last](const Layer& layer) { return placed(last, layer); };
  const Conv2DOptions first = {.filters = 4,
                               .kernel_size = {3, 2},
                               .strides = 2,
                               .padding = Padding::kSame,
                               .activation = "relu",
                               .kernel_regularizer = Regularizer::l1_l2(0.25, 0.5),
                               .kernel_constraint = MaxNorm{.max_value = 3.0, .axis = {0, 1, 2}}};
  Sequential model({of(Conv2D(first)), BatchNormalization({.axis = last ? -1 : 1, .momentum = 0.5}),
                    of(DepthwiseConv2D({.kernel_size = 2, .depth_multiplier = 2, .depthwise_constraint = NonNeg{}})),
                    of(SeparableConv2D({.filters = 3, .kernel_size = 1, .trainable = false})),
                    of(ZeroPadding2D({1, 0, 2, 1})), of(Cropping2D({0, 1, 1, 0})), of(UpSampling2D({.size = {2, 1}})),
                    of(MaxPooling2D({.pool_size = 2, .strides = 1})), of(GroupNormalization({.groups = 3})),
                    of(Conv2DTranspose({.filters = 2, .kernel_size = 3, .output_padding = 0})),
                    of(SpatialDropout2D(0.5)), of(GlobalAveragePooling2D()), Dropout(0.25), Dense(2, "softmax")},
                   {.name = "pictures"});
  model.build(last ? Shape{8, 9, 2} : Shape{2, 8, 9});
  return model;
}

Sequential volumes() {
  Sequential model({ChannelsLast(Conv3D({.filters = 2, .kernel_size = {1, 2, 2}})),
                    ChannelsLast(Conv3DTranspose({.filters = 3, .kernel_size = 2, .strides = 2})),
                    ChannelsLast(AveragePooling3D()), ChannelsLast(ZeroPadding3D({{1, 0}, {0, 2}, {1, 1}})),
                    ChannelsLast(Cropping3D({{0, 1}, {1, 0}, {1, 0}})), ChannelsLast(UpSampling3D({1, 2, 1})),
                    UnitNormalization({.axis = {-1}}), ChannelsLast(GlobalMaxPooling3D())});
  model.build({2, 4, 5, 2});
  return model;
}

Sequential steps() {
  const GRUOptions gru{.units = 3, .return_sequences = true, .recurrent_initializer = Initializer::identity(0.5)};
  Sequential model({Rescaling(0.5, 0.25),
                    Permute({2, 1}),
                    ChannelsLast(Conv1D({.filters = 4, .kernel_size = 2, .padding = Padding::kCausal})),
                    ChannelsLast(AveragePooling1D()),
                    ChannelsLast(ZeroPadding1D({1, 2})),
                    ChannelsLast(Cropping1D({0, 2})),
                    SpatialDropout1D(0.25),
                    GaussianNoise(0.5),
                    Masking(0.5),
                    Bidirectional(GRU(gru), {.merge_mode = BidirectionalOptions::Merge::kMul, .name = "both"}),
                    LSTM({.units = 4, .return_sequences = true, .use_bias = false}),
                    LayerNormalization({.dimensions = 2}),
                    RMSNormalization(),
                    TimeDistributed(Dense(3)),
                    ReLU({.max_value = 2.0, .negative_slope = 0.125}),
                    LeakyReLU(),
                    SimpleRNN(2),
                    RepeatVector(3),
                    GlobalMaxPooling1D(),
                    Reshape({2, 1}),
                    Flatten(),
                    Activation("tanh")},
                   {.dtype = torch::kDouble});
  model.build({3, 8});
  return model;
}

void expect_same(Sequential& model, const torch::Tensor& x) {
  const TemporaryFolder folder;
  const auto randomized = [&] {
    NamedTensors weights = model.weights();
    for (auto& [name, tensor] : weights) {
      if (tensor.is_floating_point() && name.find("bias_hh_l0") == std::string::npos) tensor.uniform_(0.1, 0.9);
    }
    return weights;
  };
  model.set_weights(randomized());
  save_model(model, folder / "m.keras");
  Model loaded = load_model(folder / "m.keras");
  EXPECT_EQ(loaded.name(), model.name());
  EXPECT_FALSE(loaded.compiled());
  const std::vector<ModelLayer> ours = model.layers(), theirs = loaded.layers();
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].name(), theirs[i].name());
    EXPECT_EQ(ours[i].type(), theirs[i].type());
    EXPECT_EQ(ours[i].trainable(), theirs[i].trainable());
  }
  EXPECT_TRUE(torch::equal(model.predict(x), loaded.predict(x)));
  ASSERT_EQ(model.losses().size(), loaded.losses().size());
  // The second file is the first one.
  save_model(loaded, folder / "again.keras");
  EXPECT_EQ(read_file(folder / "m.keras"), read_file(folder / "again.keras"));
}

TEST(KerasFile, IsReadAsItWasWritten) {
  torch::manual_seed(3);
  Sequential last = images(/*last=*/true);
  expect_same(last, torch::randn({2, 8, 9, 2}));
  Sequential first = images(/*last=*/false);
  expect_same(first, torch::randn({2, 2, 8, 9}));
  Sequential bodies = volumes();
  expect_same(bodies, torch::randn({2, 2, 4, 5, 2}));
  Sequential sequences = steps();
  expect_same(sequences, torch::randn({2, 3, 8}, torch::kDouble));
  Sequential words{Embedding({.input_dim = 7, .output_dim = 3, .mask_zero = true}), GRU(2)};
  words.build({4}, torch::kLong);
  expect_same(words, torch::randint(0, 7, {2, 4}));
}

TEST(KerasFile, HasNoLayersThatKerasLacks) {
  const TemporaryFolder folder;
  Sequential model{Dense(2), Lambda([](const torch::Tensor& x) { return x; }, "mine")};
  EXPECT_THROW(save_model(model, folder / "m.keras"), FailedPrecondition);
  model.build({3});
  try {
    save_model(model, folder / "m.keras");
    ADD_FAILURE() << "a Lambda was written";
  } catch (const NotFound& error) {
    EXPECT_NE(std::string(error.what()).find("layer \"mine\" (Lambda)"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

template <typename Expected>
void expect_refused(const std::filesystem::path& file, const std::string& names) {
  try {
    load_model(file);
    ADD_FAILURE() << file << " was loaded";
  } catch (const Expected& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find(names), std::string::npos) << said;
    EXPECT_NE(said.find(file.filename().string()), std::string::npos) << said;
  }
}

// Returns the file of a small model.
std::string small_file(const TemporaryFolder& folder) {
  Sequential model({Dense({.units = 2, .name = "first"})}, {.name = "tiny"});
  model.build({3});
  save_model(model, folder / "good.keras");
  return read_file(folder / "good.keras");
}

TEST(KerasFile, RefusesWhatIsCutOrChanged) {
  const TemporaryFolder folder;
  const std::string good = small_file(folder);
  load_model(folder / "good.keras");
  expect_refused<NotFound>(folder / "none.keras", "no such file");
  for (const double part : {0.0, 0.1, 0.5, 0.9, 0.999}) {
    write_file(folder / "cut.keras", good.substr(0, static_cast<std::size_t>(part * static_cast<double>(good.size()))));
    expect_refused<DataLoss>(folder / "cut.keras", "is not a whole zip archive");
  }
  // Any byte may differ: the file is refused, or what differs has no meaning.
  for (std::size_t i = 0; i < good.size(); i += 7) {
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
    write_file(folder / "changed.keras", changed);
    try {
      load_model(folder / "changed.keras");
    } catch (const Error&) {
    }
  }
}

TEST(KerasFile, RefusesHostileFiles) {
  if (!std::filesystem::is_directory(facts())) GTEST_SKIP() << facts() << " is not there: no files of Keras";
  expect_refused<NotFound>(facts() / "15_lambda.keras", "Lambda");
  expect_refused<DataLoss>(facts() / "17a_truncated_zip.keras", "is not a whole zip archive");
  expect_refused<DataLoss>(facts() / "17f_h5_cut.keras", "model.weights.h5: is not a whole HDF5 file");
  expect_refused<InvalidArgument>(facts() / "17j_slash_in_name.keras", "block/first");
  expect_refused<NotFound>(facts() / "18a_layer_from_os.keras", "\"system\" of the module \"os\"");
  expect_refused<NotFound>(facts() / "18f_h5_external_link.keras", "\"layers/dense/vars/0\" is a link to another file");
  EXPECT_FALSE(std::filesystem::exists("/tmp/held_keras_was_executed"));
}

// Returns the files with models that are loaded, without their suffix.
std::vector<std::string> loaded_files() {
  return {"01_two_inputs_two_outputs", "04_masking_bilstm",        "06_frozen_base_transfer",
          "08_attention_norms",        "10_adapted_preprocessing", "12_mixed_float16"};
}

constexpr Tolerance kWithin = {.absolute = 1e-5, .relative = 1e-5};
constexpr Tolerance kWithinHalf = {.absolute = 2e-3, .relative = 2e-3};

NamedTensors columns(const nlohmann::json& facts) {
  NamedTensors list;
  for (const auto& [name, each] : facts.items()) {
    const bool whole = each.is_object() && each.at("dtype").get<std::string>().rfind("int", 0) == 0;
    const nlohmann::json& value = each.is_object() ? each.at("value") : each;
    list.emplace_back(name, golden_tensor(value, whole ? torch::kLong : torch::kFloat));
  }
  return list;
}

// Returns the examples of the facts; classes are integers.
Example batch_of(const nlohmann::json& golden) {
  Example batch;
  batch.inputs = columns(golden.at("inputs"));
  for (const auto& [output, values] : golden.at("targets").items()) {
    const bool classes = values.at(0).is_number_integer();
    batch.targets.emplace_back(output, golden_tensor(values, classes ? torch::kLong : torch::kFloat));
  }
  return batch;
}

// Returns the name here of a variable of a recurrent layer.
std::string recurrent_name(const Model& model, const std::string& layer, const std::string& variable,
                           const std::string& in_file) {
  const bool back = in_file.find("/backward_layer/") != std::string::npos;
  const bool ahead = in_file.find("/forward_layer/") != std::string::npos;
  const std::string prefix = layer + (back ? "backward." : ahead ? "forward." : "");
  const std::string which = variable == "kernel" ? "weight_ih" : variable == "bias" ? "bias" : "weight_hh";
  for (const auto& [name, tensor] : model.weights()) {
    if (name == prefix + "cell." + which) return name;  // one that goes through the steps itself
  }
  return prefix + (which == "bias" ? "bias_ih" : which) + "_l0";
}

// Returns the name here of a variable of Keras'.
std::string name_of(const Model& model, const nlohmann::json& weight) {
  const std::map<std::string, std::string> names = {{"kernel", "weight"},
                                                    {"gamma", "weight"},
                                                    {"embeddings", "weight"},
                                                    {"beta", "bias"},
                                                    {"bias", "bias"},
                                                    {"moving_mean", "running_mean"},
                                                    {"moving_variance", "running_var"},
                                                    {"mean", "mean"},
                                                    {"variance", "variance"},
                                                    {"count", "count"}};
  const std::string variable = weight.at("variable").get<std::string>();
  std::string path;
  for (const auto& layer : weight.at("layer")) path += layer.get<std::string>() + ".";
  const std::string last = variable.substr(variable.rfind('/') + 1);
  const std::string in_file = weight.at("h5").get<std::string>();
  if (in_file.find("/cell/") != std::string::npos) return recurrent_name(model, path, last, in_file);
  for (const char* const head : {"query", "key", "value", "output"}) {
    if (in_file.find(c10::str("/", head, "_dense/")) != std::string::npos) path += c10::str(head, ".");
  }
  return path + names.at(last);
}

// Checks sums and norms, which no layout changes.
std::string check_weights(const Model& model, const nlohmann::json& weights, const char* when,
                          const Tolerance& within) {
  std::map<std::string, torch::Tensor> ours;
  for (const auto& [name, tensor] : model.weights()) ours[name] = tensor.to(torch::kDouble);
  std::string wrong;
  for (const auto& weight : weights) {
    const std::string name = name_of(model, weight);
    if (!ours.contains(name)) return "there is no " + name;
    const auto& wanted = weight.at(when);
    wrong += difference(name + " " + when, ours[name].sum().item<double>(), wanted.at("sum"), within);
    wrong += difference(name + " " + when, ours[name].norm().item<double>(), wanted.at("l2"), within);
  }
  return wrong;
}

std::string check_logs(const Logs& logs, const nlohmann::json& wanted, const Tolerance& within) {
  std::string wrong;
  for (const auto& [name, value] : wanted.items()) {
    if (!logs.contains(name)) return "there is no " + name;
    wrong += difference(name, logs[name], value.get<double>(), within);
  }
  return wrong;
}

TEST(KerasFile, GraphsComputeWhatTheyComputeInKeras) {
  if (!std::filesystem::is_directory(facts())) GTEST_SKIP() << facts() << " is not there: no files of Keras";
  for (const std::string& name : loaded_files()) {
    SCOPED_TRACE(name);
    const auto golden = nlohmann::json::parse(read_file(facts() / (name + ".json")));
    const Tolerance& within = name == "12_mixed_float16" ? kWithinHalf : kWithin;
    Model model = load_model(facts() / (name + ".keras"));
    const Example batch = batch_of(golden);
    const auto& wanted = golden.at("outputs");
    for (const auto& [output, tensor] : model.predict_outputs(batch)) {
      const auto& numbers = wanted.size() > 1 ? wanted.at(output) : *wanted.begin();
      EXPECT_EQ(difference(output, tensor.to(torch::kDouble), golden_tensor(numbers), within), "");
    }
    EXPECT_EQ(check_weights(model, golden.at("weights"), "loaded", within), "");
    EXPECT_EQ(check_logs(model.test_on_batch(batch), golden.at("evaluate"), within), "");
    EXPECT_EQ(check_logs(model.train_on_batch(batch), golden.at("train_on_batch"), within), "");
    EXPECT_EQ(check_weights(model, golden.at("weights"), "after", within), "");
  }
}

// A model that was trained here is saved with its optimizer, and both go on in the same way.
TEST(KerasFile, GoesOnAfterItWasSaved) {
  if (!std::filesystem::is_directory(facts())) GTEST_SKIP() << facts() << " is not there: no files of Keras";
  const TemporaryFolder folder;
  for (const std::string& name : loaded_files()) {
    SCOPED_TRACE(name);
    const auto golden = nlohmann::json::parse(read_file(facts() / (name + ".json")));
    const Example batch = batch_of(golden);
    Model model = load_model(facts() / (name + ".keras"));
    model.train_on_batch(batch);
    save_model(model, folder / "m.keras");
    Model loaded = load_model(folder / "m.keras");
    const Logs wanted = model.train_on_batch(batch), got = loaded.train_on_batch(batch);
    for (const auto& [log, value] : wanted) EXPECT_DOUBLE_EQ(*got.find(log), value) << log;
    const NamedTensors before = model.weights(), after = loaded.weights();
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (before[i].first.find("num_batches_tracked") != std::string::npos) continue;  // Keras counts no batches
      EXPECT_TRUE(torch::equal(before[i].second, after[i].second)) << before[i].first;
    }
    save_model(loaded, folder / "bare.keras", {.compile = false});
    EXPECT_FALSE(load_model(folder / "bare.keras").compiled());
  }
}

TEST(KerasFile, HoldsWeightsAlone) {
  const TemporaryFolder folder;
  torch::manual_seed(5);
  Sequential last = images(/*last=*/true), first = images(/*last=*/false);
  save_keras_weights(last, folder / "m.weights.h5");
  load_keras_weights(first, folder / "m.weights.h5");  // the layout of images does not matter
  const NamedTensors wanted = last.weights(), got = first.weights();
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(torch::equal(wanted[i].second, got[i].second)) << i;
  Sequential other{Dense(2)};
  other.build({3});
  EXPECT_THROW(load_keras_weights(other, folder / "m.weights.h5"), DataLoss);
  EXPECT_THROW(load_keras_weights(other, folder / "none.h5"), NotFound);
  Sequential gated{Dense(4), GLU()};
  gated.build({5});
  EXPECT_THROW(save_model(gated, folder / "a.keras"), NotFound);
  EXPECT_EQ(names_in(folder.path()).size(), 1U);
}

// Nothing that Keras has no word for is left out in silence.
TEST(KerasFile, WritesNoCompileStateThatKerasLacks) {
  const TemporaryFolder folder;
  Sequential model{Dense(2)};
  model.build({3});
  const auto expect_named = [&](const CompileOptions& options, const std::string& names) {
    model.compile(options);
    try {
      save_model(model, folder / "m.keras");
      ADD_FAILURE() << names << " was written";
    } catch (const NotFound& error) {
      EXPECT_NE(std::string(error.what()).find(names), std::string::npos) << error.what();
    }
  };
  const Loss mine("mine", [](const torch::Tensor& y, const torch::Tensor& p) { return (y - p).abs().mean(-1); });
  expect_named({.optimizer = SGD({}), .loss = mine}, "no loss \"mine\"");
  expect_named({.optimizer = Adam({.formulation = Formulation::kTorch}), .loss = "mse"}, "formulation");
  expect_named({.optimizer = SGD({.learning_rate = LinearWarmup({.after = 0.1})}), .loss = "mse"}, "LinearWarmup");
  expect_named({.optimizer = Adam({.exclude_from_weight_decay = {"1d"}}), .loss = "mse"}, "excluded from weight decay");
  expect_named({.optimizer = Optimizer("adafactor"), .loss = "mse"}, "no optimizer \"Adafactor\"");
  expect_named({.optimizer = SGD({}), .loss = "mse", .loss_average = LossAverage::kReplicas}, "loss_average");
  expect_named({.optimizer = SGD({}), .loss = "mse", .eval_run_eagerly = true}, "eval_run_eagerly");
  expect_named({.optimizer = SGD({}), .loss = "mse", .metrics = {Mean()}}, "no metric \"mean\"");
  save_model(model, folder / "m.keras", {.compile = false});
  EXPECT_EQ(names_in(folder.path()).size(), 1U);
}

}  // namespace
}  // namespace cohort::testing::keras_file_test
