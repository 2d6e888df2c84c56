// Layers of sequences: LSTM, GRU, Bidirectional, TimeDistributed, Masking, and the masks that pass through a model.
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
  torch::nn::LSTM own(torch::nn::LSTMOptions(3, 4).batch_first(true));
  load(layer, own);
  const torch::Tensor x = random({2, 5, 3});
  const torch::Tensor y = std::get<0>(own->forward(x));
  expect_close(layer(x), y);
  layer(x).square().sum().backward();
  y.square().sum().backward();
  for (const auto& item : own->named_parameters()) expect_close(layer[item.key()].grad(), item.value().grad(), 1e-10);
  EXPECT_EQ(layer["bias_ih_l0"].slice(0, 4, 8).sum().item<double>(), 4.0);
  EXPECT_EQ(layer["bias_ih_l0"].sum().item<double>(), 4.0);
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

TEST(BidirectionalTest, MergesBothDirections) {
  torch::manual_seed(5);
  using Merge = BidirectionalOptions::Merge;
  const torch::Tensor x = random({2, 5, 3});
  const Built both = build(Bidirectional(LSTM({.units = 4, .return_sequences = true})), {5, 3});
  expect_shape(both, {5, 3});
  torch::nn::LSTM own(torch::nn::LSTMOptions(3, 4).batch_first(true).bidirectional(true));
  own->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : own->named_parameters()) {
      const std::string suffix = "_reverse";
      const bool back = item.key().ends_with(suffix);
      const std::string name = back ? item.key().substr(0, item.key().size() - suffix.size()) : item.key();
      item.value().copy_(both[(back ? "backward." : "forward.") + name]);
    }
  }
  expect_close(both(x), std::get<0>(own->forward(x)));
  for (const Merge merge : {Merge::kSum, Merge::kMul, Merge::kAve}) {
    expect_shape(build(Bidirectional(GRU(4), {.merge_mode = merge}), {5, 3}), {5, 3});
  }
  expect_error<InvalidArgument>([] { Bidirectional(Dense(3)); }, "wants an LSTM or a GRU, got a Dense");
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
