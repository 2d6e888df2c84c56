#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "cohort/error.h"
#include "cohort/train.h"
#include "tests/support/errors.h"

namespace cohort::functional_test {
namespace {

using testing::expect_error;

const FunctionalOptions kDouble = {.dtype = torch::kDouble};

torch::Tensor rows(int64_t count, int64_t size, double from = 0.0) {
  return (torch::arange(count * size, torch::kDouble) * 0.7 + from).sin().view({count, size});
}

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const ModelLayer& layer : model.layers()) names.push_back(layer.name());
  return names;
}

torch::Tensor weight(const Model& model, const std::string& name) {
  for (const auto& [own, tensor] : model.weights()) {
    if (own == name) return tensor;
  }
  ADD_FAILURE() << "no weight " << name;
  return {};
}

torch::Tensor dense(const Model& model, const std::string& layer, const torch::Tensor& x) {
  return torch::linear(x, weight(model, layer + ".weight"), weight(model, layer + ".bias"));
}

TEST(Functional, ComputesItsGraph) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const SymbolicTensor a = Input({3}, {.name = "a"}), b = Input({2}, {.name = "b"});
  const SymbolicTensor hidden = Dense(4, "tanh")(a);
  const SymbolicTensor joined = Concatenate()({hidden, b});
  const SymbolicTensor sum = Dense(4)(joined) + hidden;
  Functional model({a, b}, {{"sum", sum}, {"part", 2.0 * sum.slice(1, 1, 3) - 1.0}}, kDouble);
  EXPECT_EQ(names_of(model), (std::vector<std::string>{"a", "dense", "b", "concatenate", "dense_1"}))
      << "as Keras lists them: operators are no layers";
  const torch::Tensor x = rows(5, 3), y = rows(5, 2, 1.0);
  const NamedTensors outputs = model({{"b", y}, {"a", x}});
  const torch::Tensor own = dense(model, "dense", x).tanh();
  const torch::Tensor wanted = dense(model, "dense_1", torch::cat({own, y}, 1)) + own;
  EXPECT_TRUE(torch::allclose(outputs[0].second, wanted, 0.0, 1e-12));
  EXPECT_EQ(outputs[1].first, "part");
  EXPECT_TRUE(torch::allclose(outputs[1].second, 2.0 * wanted.slice(1, 1, 3) - 1.0, 0.0, 1e-12));
}

TEST(Functional, ComputesFunctionsOfTensors) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const SymbolicTensor a = Input({3, 4}, {.name = "a"});
  const SymbolicTensor large = maximum(abs(a), 0.2);
  Functional model(a,
                   {sum(log(large), 1), mean(minimum(sqrt(large), a), -1, true), max(pow(large, 1.5) - exp(a), 2),
                    min(square(a) * tanh(a), 1), relu(a) + sigmoid(a) - silu(a), pow(2.0, a).select(2, -1)},
                   kDouble);
  const torch::Tensor x = rows(5, 12).view({5, 3, 4});
  const torch::Tensor above = x.abs().clamp_min(0.2);
  const std::vector<torch::Tensor> wanted = {above.log().sum(1),
                                             torch::minimum(above.sqrt(), x).mean(2, /*keepdim=*/true),
                                             (above.pow(1.5) - x.exp()).amax(2),
                                             (x.square() * x.tanh()).amin(1),
                                             x.relu() + x.sigmoid() - x * x.sigmoid(),
                                             x.exp2().select(2, -1)};
  const NamedTensors outputs = model({{"a", x}});
  ASSERT_EQ(outputs.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(torch::allclose(outputs[i].second, wanted[i], 0.0, 1e-12)) << i;
  }
  expect_error<InvalidArgument>([&] { mean(a, 0); }, "the batch's is 0");
}

// A mask may be made of any tensors, and takes the place of the one that comes with the input.
TEST(Functional, CallsMayHaveMasks) {
  torch::manual_seed(3);
  const SymbolicTensor x = Input({4, 3}, {.name = "x"}), ids = Input({4}, {.dtype = torch::kLong, .name = "ids"});
  const Layer lstm = LSTM(5);
  const SymbolicTensor known = not_equal(ids, 0), there = any(not_equal(x, -1.0), -1);
  EXPECT_EQ(there.shape(), (Shape{4}));
  EXPECT_EQ(there.dtype(), torch::kBool);
  const SymbolicTensor mask = logical_and(known, logical_or(known, there));
  Functional model({x, ids}, {{"given", lstm(x, SymbolicCall{.masks = {mask}})}, {"plain", lstm(Masking(-1.0)(x))}},
                   kDouble);
  torch::Tensor values = rows(8, 3).view({2, 4, 3});
  values.slice(1, 2, 3).fill_(-1.0);
  const torch::Tensor words = torch::tensor({{1, 2, 3, 0}, {0, 1, 1, 0}});
  const NamedTensors outputs = model({{"x", values}, {"ids", words}});
  Functional masked(x, lstm(Masking(-1.0)(x)), kDouble);
  torch::Tensor hidden = values.clone();
  EXPECT_TRUE(torch::allclose(outputs[1].second, masked(hidden)));
  hidden = rows(8, 3).view({2, 4, 3});
  hidden.slice(1, 2, 3).fill_(-1.0);
  hidden.masked_fill_(words.eq(0).unsqueeze(-1), -2.0);
  Functional by_number(x, lstm(Masking(-2.0)(x)), kDouble);
  EXPECT_TRUE(torch::allclose(outputs[0].second, by_number(hidden)));
  expect_error<InvalidArgument>([&] { lstm(x, SymbolicCall{.masks = {mask, mask}}); }, "2 masks for 1 tensors");
  expect_error<InvalidArgument>([&] { any(x, 0); }, "the dimension is 0");
}

// As Keras' MultiHeadAttention, whose inputs have no masks for the layers that are called after it.
TEST(Functional, AttentionMayEndMasks) {
  using Masks = MultiHeadAttentionOptions::Masks;
  for (const Masks masks : {Masks::kZeros, Masks::kKeras3}) {
    const SymbolicTensor ids = Input({4}, {.dtype = torch::kLong, .name = "ids"});
    const SymbolicTensor words = Embedding({.input_dim = 5, .output_dim = 3, .mask_zero = true})(ids);
    const SymbolicTensor itself = MultiHeadAttention({.num_heads = 2, .key_dim = 2, .masks = masks})({words, words});
    const SymbolicTensor sum = Add()({words, itself});
    Functional model(ids, {{"sum", sum}, {"mean", GlobalAveragePooling1D()(sum)}}, kDouble);
    const NamedTensors outputs = model({{"ids", torch::tensor({{1, 3, 0, 0}, {2, 0, 4, 0}})}});
    const torch::Tensor counts = torch::tensor({{1, 1, 0, 0}, {1, 0, 1, 0}}).unsqueeze(-1);
    const torch::Tensor& y = outputs[0].second;
    const torch::Tensor wanted = masks == Masks::kKeras3 ? y.mean(1) : (y * counts).sum(1) / 2.0;
    EXPECT_TRUE(torch::allclose(outputs[1].second, wanted));
  }
  const SymbolicTensor x = Input({4, 3});
  expect_error<InvalidArgument>([&] { LSTM(2)(x, SymbolicCall{.attention_mask = x}); }, "takes no attention_mask");
}

// Keras 3.15.1: [l.name for l in keras.Model([b, a], {...}).layers], whose branches have different depths.
TEST(Functional, LayersHaveKerasOrder) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const SymbolicTensor a = Input({3}, {.name = "a"}), b = Input({3}, {.name = "b"}), unused = Input({1}, {.name = "u"});
  const Layer shared = Dense({.units = 3, .name = "shared"});
  const SymbolicTensor far = Dense({.units = 3, .name = "far"})(shared(a));
  const SymbolicTensor near = shared(b);
  const SymbolicTensor join = Add({.name = "join"})({near, far});
  Functional model({b, a, unused}, {join, Dense({.units = 2, .name = "last"})(near)});
  EXPECT_EQ(names_of(model), (std::vector<std::string>{"b", "a", "shared", "far", "u", "join", "last"}));
}

TEST(Functional, ASharedLayerHasItsParametersOnce) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const SymbolicTensor a = Input({3}, {.name = "a"}), b = Input({3}, {.name = "b"});
  const Layer tower = Dense({.units = 2, .name = "tower"});
  Functional model({a, b}, tower(a) * tower(b), kDouble);
  EXPECT_EQ(model.count_params(), 8);
  const torch::Tensor x = rows(4, 3), y = rows(4, 3, 2.0);
  const NamedTensors outputs = model({{"a", x}, {"b", y}}, {.training = true});
  EXPECT_TRUE(torch::allclose(outputs[0].second, dense(model, "tower", x) * dense(model, "tower", y), 0.0, 1e-12));
  outputs[0].second.sum().backward();
  EXPECT_TRUE(torch::allclose(model.trainable_variables()[1].grad(),
                              (dense(model, "tower", x) + dense(model, "tower", y)).sum(0), 0.0, 1e-12));
}

TEST(Functional, ModelsOfTheSameLayersShareThem) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const SymbolicTensor input = Input({6});
  const SymbolicTensor code = Dense({.units = 2, .name = "code"})(input);
  Functional autoencoder(input, Dense({.units = 6, .name = "back"})(code), kDouble);
  Functional encoder(autoencoder.inputs(), autoencoder.output_of("code"), kDouble);
  autoencoder.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  const torch::Tensor x = rows(7, 6), before = encoder.predict(x);
  (void)autoencoder.fit(x, x, {.verbose = Verbose::kSilent});
  EXPECT_FALSE(torch::allclose(encoder.predict(x), before));
  EXPECT_TRUE(torch::equal(encoder.predict(x), dense(autoencoder, "code", x)));
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(encoder.module().copies()[r]->parameters().front().is_same(
        autoencoder.module().copies()[r]->named_parameters()["code.weight"]));
  }
}

TEST(Functional, AModelIsALayer) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  Sequential base({Dense({.units = 4, .activation = "relu"}), BatchNormalization()},
                  {.name = "base", .dtype = torch::kDouble});
  const SymbolicTensor input = Input({3}, {.name = "x"});
  Functional model(input, Dense(2)(base(input)), kDouble);
  EXPECT_TRUE(base.built()) << "it is built by the call";
  EXPECT_EQ(names_of(model), (std::vector<std::string>{"x", "base", "dense"}));
  EXPECT_EQ(model.layer("base").type(), "Sequential");
  base.set_trainable(false);
  const torch::Tensor x = rows(9, 3), y = rows(9, 2);
  const NamedTensors frozen = base.weights();
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  (void)model.fit(x, y, {.epochs = 2, .verbose = Verbose::kSilent});
  for (const auto& [name, tensor] : frozen) {
    EXPECT_TRUE(torch::equal(weight(model, "base." + name), tensor)) << name << ", statistics too";
  }
  base.set_trainable(true);
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  (void)model.fit(x, y, {.verbose = Verbose::kSilent});
  EXPECT_FALSE(torch::equal(weight(base, "dense.weight"), frozen[0].second)) << "fine-tuned";
}

TEST(Functional, ACallKeepsToItsMode) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const SymbolicTensor input = Input({3});
  Functional model(input,
                   {BatchNormalization({.name = "held"})(input, {.training = false}),
                    Dropout({.rate = 0.5, .name = "dropped"})(input, {.training = true}),
                    Dropout({.rate = 0.5, .name = "usual"})(input)},
                   kDouble);
  const torch::Tensor x = torch::ones({40, 3}, torch::kDouble);
  for (const bool training : {false, true}) {
    const NamedTensors outputs = model({{"input_layer", x}}, {.training = training});
    EXPECT_TRUE(torch::allclose(outputs[0].second, x, 1e-3)) << "by its running statistics";
    EXPECT_FALSE(torch::equal(outputs[1].second, x));
    EXPECT_EQ(torch::equal(outputs[2].second, x), !training);
  }
}

TEST(Functional, MasksFollowTheGraph) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  torch::manual_seed(4);
  const SymbolicTensor ids = Input({5}, {.dtype = torch::kLong, .name = "ids"});
  const SymbolicTensor words = Embedding({.input_dim = 9, .output_dim = 4, .mask_zero = true})(ids);
  const Layer lstm = LSTM({.units = 3, .return_sequences = true});
  Functional model(ids, {{"steps", Dense(1)(lstm(words))}, {"mean", GlobalAveragePooling1D()(words + 0.0)}}, kDouble);
  const torch::Tensor x = torch::tensor({{3, 1, 4, 0, 0}, {1, 5, 0, 0, 0}});
  Sequential alone({Embedding({.input_dim = 9, .output_dim = 4, .mask_zero = true}),
                    LSTM({.units = 3, .return_sequences = true}), Dense(1)},
                   {.dtype = torch::kDouble});
  alone.build({5}, torch::kLong);
  alone.set_weights(model.weights());
  EXPECT_TRUE(torch::equal(model({{"ids", x}})[0].second, alone(x))) << "the LSTM and its steps that do not count";
  const torch::Tensor y = rows(10, 1).view({2, 5, 1});
  alone.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .losses = {{"steps", "mse"}, {"mean", std::nullopt}}});
  const double masked = alone.test_on_batch({.x = x, .y = y})["loss"];
  EXPECT_NEAR(model.test_on_batch({.x = x, .targets = {{"steps", y}}})["loss"], masked, 1e-12);
}

TEST(Functional, ModulesOfOnesOwnAreLayersToo) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  Model own(
      [] {
        auto module = torch::nn::Linear(3, 2);
        module->to(torch::kDouble);
        return module;
      },
      "own");
  const SymbolicTensor input = Input({3});
  const Layer product = MergeLambda([](const std::vector<torch::Tensor>& x) { return x[0] * x[1]; });
  const SymbolicTensor y = own(input);
  Functional model(input, product({y, Dense(2)(input)}), kDouble);
  const torch::Tensor x = rows(4, 3);
  EXPECT_TRUE(torch::allclose(model(x), own(x) * dense(model, "dense", x), 0.0, 1e-12));
}

TEST(Functional, SummaryShowsConnections) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const SymbolicTensor a = Input({3}, {.name = "a"});
  const Layer tower = Dense({.units = 2, .name = "tower"});
  const SymbolicTensor first = tower(a);
  Functional model(a, Concatenate({.name = "both"})({first, tower(a)}));
  std::ostringstream text;
  model.summary(text);
  EXPECT_NE(text.str().find("Connected to"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("tower[0][0], tower[1][0]"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("(None, 4)"), std::string::npos) << text.str();
}

TEST(Functional, RefusesWhatDoesNotFit) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const SymbolicTensor a = Input({3}, {.name = "a"}), b = Input({3}, {.name = "b"});
  expect_error<InvalidArgument>([&] { Functional(a, Add()({a, b})); }, "depends on the input \"b\"");
  expect_error<InvalidArgument>([&] { Functional({a, a}, Dense(1)(a)); }, "an input twice");
  expect_error<InvalidArgument>([&] { Dense(1)({a, b}); }, "called with 2 tensors");
  expect_error<InvalidArgument>([&] { a.slice(1, 1, 9); }, "of a dimension of 3");
  expect_error<InvalidArgument>([&] { a.select(0, 0); }, "the batch's is 0");
  expect_error<InvalidArgument>(
      [&] {
        Functional(a, {Dense({.units = 1, .name = "x"})(a), Dense({.units = 2, .name = "x"})(a)});
      },
      "two layers are named \"x\"");
  const Layer batch_norm = BatchNormalization({.name = "norm"});
  expect_error<InvalidArgument>([&] { Functional(a, batch_norm(a, {.training = false}) + batch_norm(a)); },
                                "training set in different ways");
  Functional model({a, b}, Add()({a, b}));
  expect_error<InvalidArgument>(
      [&] {
        (void)model({{"a", torch::ones({2, 4})}, {"b", torch::ones({2, 3})}});
      },
      "the input \"a\" is Float[2, 4]");
  expect_error<NotFound>([&] { (void)model.output_of("c"); }, "there are a, b, add");
}

TEST(Functional, LayersBelongToOneStrategy) {
  const SymbolicTensor a = Input({3});
  const Layer dense = Dense(2);
  {
    const OneDeviceStrategy strategy("/CPU:0");
    const auto scope = strategy.scope();
    Functional model(a, dense(a));
  }
  const OneDeviceStrategy other("/CPU:0");
  const auto scope = other.scope();
  expect_error<FailedPrecondition>([&] { Functional(a, Dense(1)(dense(a))); }, "built under another strategy");
}

}  // namespace
}  // namespace cohort::functional_test
