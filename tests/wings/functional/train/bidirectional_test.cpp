// Bidirectional: any recurrent layer and another one in the other direction.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/train/layers.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::bidirectional_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;
using torch::Tensor;
using Merge = BidirectionalOptions::Merge;

// Gives a layer the parameters that another one has behind a prefix.
void take(const Built& to, const Built& from, const std::string& prefix) {
  const torch::NoGradGuard no_grad;
  for (auto& item : to.module->named_parameters()) item.value().copy_(from[prefix + item.key()]);
}

TEST(BidirectionalTest, MergesBothDirections) {
  torch::manual_seed(5);
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
  expect_error<InvalidArgument>([] { Bidirectional(Dense(3)); },
                                "wants a recurrent layer, such as LSTM, GRU or RNN, got a Dense");
}

TEST(BidirectionalTest, GivesZerosAtMaskedSteps) {
  torch::manual_seed(8);
  const torch::Tensor x = random({2, 5, 3});
  const torch::Tensor mask = torch::tensor({{1, 0, 1, 0, 0}, {0, 0, 1, 1, 1}}).to(torch::kBool);
  const Built layer = build(Bidirectional(LSTM({.units = 4, .return_sequences = true})), {5, 3});
  const torch::Tensor y = layer.module->forward_masked(x, mask);
  EXPECT_EQ(y.index({mask.logical_not()}).abs().sum().item<double>(), 0.0);
  const torch::Tensor counted = x[0].index_select(0, torch::tensor({0, 2})).unsqueeze(0);
  expect_close(y[0].index_select(0, torch::tensor({0, 2})), layer(counted)[0]);
}

TEST(BidirectionalTest, TakesTwoLayersOfAnySort) {
  torch::manual_seed(9);
  const Tensor x = random({2, 5, 3});
  const Tensor mask = torch::tensor({{1, 1, 1, 0, 0}, {1, 0, 1, 1, 1}}).to(torch::kBool);
  for (const bool sequences : {false, true}) {
    const Layer ahead = GRU({.units = 2, .return_sequences = sequences});
    const Layer back = RNN(LSTMCell({.units = 4, .activation = "relu", .recurrent_activation = "hard_sigmoid"}),
                           {.return_sequences = sequences, .go_backwards = true, .zero_output_for_mask = sequences});
    const Built both = build(Bidirectional(ahead, {.backward_layer = back}), {5, 3});
    expect_shape(both, {5, 3});
    EXPECT_EQ(both.output.back(), 6);
    const Built first =
        build(GRU({.units = 2, .return_sequences = sequences, .zero_output_for_mask = sequences}), {5, 3});
    const Built second = build(back, {5, 3});
    take(first, both, "forward.");
    take(second, both, "backward.");
    const auto turned = [&](const Tensor& y) { return sequences ? y.flip({1}) : y; };
    expect_close(both(x), torch::cat({first(x), turned(second(x))}, -1));
    expect_close(
        both.module->forward_masked(x, mask),
        torch::cat({first.module->forward_masked(x, mask), turned(second.module->forward_masked(x, mask))}, -1));
  }
}

TEST(BidirectionalTest, KeepsOutputsAndStatesApart) {
  torch::manual_seed(10);
  const Layer cells = RNN(LSTMCell({.units = 4}), {.return_state = true});
  const auto kind =
      std::dynamic_pointer_cast<const GraphLayerKind>(Bidirectional(cells, {.merge_mode = Merge::kNone}).shared_kind());
  const BuildContext context{.name = "it", .input = {5, 3}, .dtype = torch::kDouble, .input_dtype = torch::kDouble};
  EXPECT_EQ(kind->output_shapes(context, {{5, 3}}), std::vector<Shape>(6, Shape{4}));
  const LayerValues made = kind->build_for(context, {{5, 3}})->forward_values({.tensors = {random({2, 5, 3})}});
  ASSERT_EQ(made.tensors.size(), 6U);
  expect_close(made.tensors[0], made.tensors[2]);  // the output of a direction is its last state
  expect_close(made.tensors[1], made.tensors[4]);
}

TEST(BidirectionalTest, RefusesWhatDoesNotFit) {
  const auto of = [](const Layer& back, Merge merge = Merge::kConcat) {
    return Bidirectional(GRU(2), {.merge_mode = merge, .backward_layer = back});
  };
  expect_error<InvalidArgument>([&] { of(GRU(2)); }, "both layers go forwards, wanted two directions");
  expect_error<InvalidArgument>([&] { of(GRU({.units = 2, .return_sequences = true, .go_backwards = true})); },
                                "return_sequences differs between the directions");
  expect_error<InvalidArgument>([&] { of(GRU({.units = 2, .go_backwards = true, .trainable = false})); },
                                "one direction is trainable and the other is not");
  const Layer wide = GRU({.units = 3, .go_backwards = true});
  expect_error<InvalidArgument>([&] { build(of(wide, Merge::kSum), {5, 3}); }, "the directions have [2] and [3]");
}

}  // namespace
}  // namespace cohort::bidirectional_test
