// Layers of sequences: LSTM, GRU, TimeDistributed, Masking, and the masks that pass through a model.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/train/layers.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"
#include "train/layers/sequential_module.h"

namespace cohort::sequence_layers_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;

// Takes the parameters of a layer over into LibTorch's module.
template <typename M>
void load(const Built& layer, M& module) {
  const torch::NoGradGuard no_grad;
  module->to(torch::kDouble);
  for (auto& item : module->named_parameters()) item.value().copy_(layer[item.key()]);
}

TEST(RecurrentTest, LstmIsLibTorchs) {
  torch::manual_seed(1);
  const Built layer = build(LSTM({.units = 4, .return_sequences = true}), {5, 3});
  expect_shape(layer, {5, 3});
  EXPECT_EQ(layer["bias_ih_l0"].slice(0, 4, 8).sum().item<double>(), 4.0);
  EXPECT_EQ(layer["bias_ih_l0"].sum().item<double>(), 4.0);
  layer["bias_hh_l0"].normal_();  // as a file of PyTorch's, or of an earlier version, has it
  torch::nn::LSTM own(torch::nn::LSTMOptions(3, 4).batch_first(true));
  load(layer, own);
  const torch::Tensor x = random({2, 5, 3});
  const torch::Tensor y = std::get<0>(own->forward(x));
  expect_close(layer(x), y);
  layer(x).square().sum().backward();
  y.square().sum().backward();
  for (const auto& item : layer.module->named_parameters()) {
    expect_close(item.value().grad(), own->named_parameters()[item.key()].grad(), 1e-10);
  }
}

// Keras' LSTM has one bias: with the two of LibTorch a step moves the sum, which alone counts, twice.
TEST(RecurrentTest, TheBiasOfAnLstmLearnsOnce) {
  const Built lstm = build(LSTM(4), {5, 3});
  std::vector<std::string> names;
  for (const auto& item : lstm.module->named_parameters()) names.push_back(item.key());
  EXPECT_EQ(names, (std::vector<std::string>{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0"}));
  EXPECT_EQ(lstm["bias_hh_l0"].abs().sum().item<double>(), 0.0);
  // The recurrent bias of a GRU is multiplied by the reset gate, so that both count; Keras starts and costs both.
  const Built gru = build(
      GRU({.units = 4, .bias_initializer = Initializer::kOnes, .bias_regularizer = Regularizer::l2(0.5)}), {5, 3});
  EXPECT_EQ(gru.module->parameters().size(), 4U);
  EXPECT_EQ(gru["bias_hh_l0"].sum().item<double>(), 12.0);
  EXPECT_DOUBLE_EQ(gru.module->penalty().item<double>(), 0.5 * 24);
}

TEST(RecurrentTest, MaskedStepsMayGiveZeros) {
  torch::manual_seed(8);
  const torch::Tensor x = random({2, 5, 3});
  const torch::Tensor mask = torch::tensor({{1, 0, 1, 0, 0}, {0, 0, 1, 1, 1}}).to(torch::kBool);
  torch::manual_seed(9);
  const Built zeros = build(LSTM({.units = 4, .return_sequences = true, .zero_output_for_mask = true}), {5, 3});
  torch::manual_seed(9);
  const Built last = build(LSTM({.units = 4, .zero_output_for_mask = true}), {5, 3});
  torch::manual_seed(9);
  const Built states = build(LSTM({.units = 4, .return_sequences = true}), {5, 3});
  const torch::Tensor wanted = states.module->forward_masked(x, mask) * mask.unsqueeze(-1);
  expect_close(zeros.module->forward_masked(x, mask), wanted);
  expect_close(last.module->forward_masked(x, mask), wanted.select(1, 4));
}

TEST(MaskTest, BatchNormLeavesMaskedStepsOut) {
  torch::manual_seed(9);
  const torch::Tensor x = random({4, 5, 3});
  const torch::Tensor mask = torch::rand({4, 5}) > 0.4;
  const BatchNormalizationOptions options{.axis = -1, .momentum = 0.9};
  const Built masked = build(BatchNormalization(options), {5, 3}), rows = build(BatchNormalization(options), {3});
  const torch::Tensor input = x.clone().requires_grad_(), counted = x.index({mask}).requires_grad_();
  const torch::Tensor y = masked.module->forward_masked(input, mask).index({mask}), wanted = rows(counted);
  expect_close(y, wanted);
  y.pow(3).sum().backward();
  wanted.pow(3).sum().backward();
  expect_close(input.grad().index({mask}), counted.grad());
  expect_close(masked["weight"].grad(), rows["weight"].grad());
  expect_close(masked["running_mean"], rows["running_mean"]);
  expect_close(masked["running_var"], rows["running_var"]);
  EXPECT_TRUE(torch::equal(masked.module->mask_of(x, mask), mask));
  // Nothing counts, nothing is learned.
  masked.module->forward_masked(x, torch::zeros({4, 5}, torch::kBool));
  expect_close(masked["running_mean"], rows["running_mean"]);
  expect_close(masked["running_var"], rows["running_var"]);
  // In evaluation the mask has no part.
  masked.module->eval();
  rows.module->eval();
  expect_close(masked.module->forward_masked(x, mask).flatten(0, 1), rows(x.flatten(0, 1)));
}

TEST(RecurrentTest, GruIsLibTorchs) {
  torch::manual_seed(2);
  const Built layer = build(GRU(4), {5, 3});
  expect_shape(layer, {5, 3});
  torch::nn::GRU own(torch::nn::GRUOptions(3, 4).batch_first(true));
  load(layer, own);
  const torch::Tensor x = random({2, 5, 3});
  expect_close(layer(x), std::get<0>(own->forward(x)).select(1, 4));
  const Built plain = build(GRU({.units = 4, .use_bias = false}), {5, 3});
  EXPECT_EQ(plain.module->parameters().size(), 2U);
  expect_shape(plain, {5, 3});
}

TEST(RecurrentTest, MaskedStepsLeaveTheStateAsItIs) {
  torch::manual_seed(3);
  const torch::Tensor x = random({2, 5, 3});
  const torch::Tensor mask = torch::tensor({{1, 1, 1, 0, 0}, {1, 0, 1, 0, 1}}).to(torch::kBool);
  for (const Layer& each : {LSTM(4), GRU(4), LSTM({.units = 4, .use_bias = false})}) {
    const Built layer = build(each, {5, 3});
    const torch::Tensor y = layer.module->forward_masked(x, mask);
    expect_close(y.slice(0, 0, 1), layer(x.slice(0, 0, 1).slice(1, 0, 3)));
    const torch::Tensor second = x[1].index_select(0, torch::tensor({0, 2, 4})).unsqueeze(0);
    expect_close(y.slice(0, 1, 2), layer(second));
    expect_close(layer.module->forward_masked(x, torch::ones({2, 5}, torch::kBool)), layer(x));
    EXPECT_FALSE(layer.module->mask_of(x, mask).defined());
  }
  const Built all = build(LSTM({.units = 4, .return_sequences = true}), {5, 3});
  const torch::Tensor y = all.module->forward_masked(x, mask);
  expect_close(y[0][3], y[0][2]);
  EXPECT_TRUE(torch::equal(all.module->mask_of(x, mask), mask));
}

TEST(RecurrentTest, BackwardsIsTheReversedSequence) {
  torch::manual_seed(4);
  const Built forwards = build(LSTM({.units = 4, .return_sequences = true}), {5, 3});
  torch::manual_seed(4);
  const Built backwards = build(LSTM({.units = 4, .return_sequences = true, .go_backwards = true}), {5, 3});
  const torch::Tensor x = random({2, 5, 3});
  expect_close(backwards(x), forwards(x.flip({1})));
  const torch::Tensor mask = torch::tensor({{1, 1, 0, 0, 1}, {1, 0, 1, 1, 1}}).to(torch::kBool);
  expect_close(backwards.module->forward_masked(x, mask), forwards.module->forward_masked(x.flip({1}), mask.flip({1})));
}

TEST(TimeDistributedTest, AppliesTheLayerToEachStep) {
  const Built layer = build(TimeDistributed(Dense(4, "relu")), {5, 3});
  expect_shape(layer, {5, 3});
  const torch::Tensor x = random({2, 5, 3});
  const torch::Tensor y = layer(x);
  for (int64_t step = 0; step < 5; ++step) {
    const torch::Tensor one = torch::relu(torch::linear(x.select(1, step), layer["layer.weight"], layer["layer.bias"]));
    expect_close(y.select(1, step), one);
  }
  expect_shape(build(TimeDistributed(Conv2D(2, 3)), {4, 1, 6, 6}), {4, 1, 6, 6});
}

TEST(MaskTest, PassesThroughAModel) {
  torch::manual_seed(6);
  std::vector<Layer> layers = {Masking(), Dense(4, "tanh"), LSTM(3), Dense(2)};
  name_layers(layers);
  SequentialModule model(layers,
                         {.name = "m", .input = {5, 3}, .dtype = torch::kDouble, .input_dtype = torch::kDouble});
  torch::Tensor x = random({2, 5, 3});
  x[0].slice(0, 3).zero_();
  const torch::Tensor short_one = x.slice(0, 0, 1).slice(1, 0, 3);
  expect_close(model.forward(x).slice(0, 0, 1), model.forward(short_one));
  EXPECT_FALSE(model.take_output_mask().defined());
  EXPECT_EQ(model.forward(x.slice(0, 0, 0)).sizes(), (torch::IntArrayRef{0, 2}));

  std::vector<Layer> words = {Embedding({.input_dim = 9, .output_dim = 3, .mask_zero = true}), Dropout(0.1), Dense(2)};
  name_layers(words);
  SequentialModule tagger(words, {.name = "t", .input = {4}, .dtype = torch::kDouble, .input_dtype = torch::kLong});
  tagger.forward(torch::tensor({{3, 4, 0, 0}}));
  EXPECT_TRUE(torch::equal(tagger.take_output_mask(), torch::tensor({{true, true, false, false}})));
}

TEST(SequenceLayersTest, RefuseWhatMakesNoSense) {
  expect_error<InvalidArgument>([] { LSTM(0); }, "LSTM: units must be positive");
  expect_error<InvalidArgument>([] { build(GRU(3), {4}); }, "[steps, inputs]");
  const Built layer = build(LSTM(3), {4, 2});
  expect_error<InvalidArgument>([&] { layer(random({2, 4, 5})); }, "[batch, steps, 2]");
  expect_error<InvalidArgument>([&] { layer(random({2, 0, 2})); }, "one step or more");
  expect_error<InvalidArgument>([] { build(Masking(), {4}); }, "[steps, size]");
  expect_error<InvalidArgument>(
      [] {
        build(Embedding({.input_dim = 3, .output_dim = 2, .mask_zero = true}), {4, 2});
      },
      "[steps], for mask_zero");
}

}  // namespace
}  // namespace cohort::sequence_layers_test
