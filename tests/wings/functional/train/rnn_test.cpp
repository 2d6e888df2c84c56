// RNN with cells, its presets, and the states that it takes and gives.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "cohort/dataset.h"
#include "cohort/error.h"
#include "cohort/strategy.h"
#include "cohort/train/functional.h"
#include "cohort/train/layers.h"
#include "cohort/train/model.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::rnn_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;
using torch::Tensor;

// A layer that is built for several inputs.
struct Graph {
  std::shared_ptr<GraphLayerModule> module;
  std::vector<Shape> outputs;
};

Graph graph(const Layer& layer, const std::vector<Shape>& inputs) {
  const auto& kind = dynamic_cast<const GraphLayerKind&>(layer.kind());
  const BuildContext context{
      .name = "it", .input = inputs.front(), .dtype = torch::kDouble, .input_dtype = torch::kDouble};
  std::vector<Shape> outputs = kind.output_shapes(context, inputs);
  return {.module = kind.build_for(context, inputs), .outputs = std::move(outputs)};
}

// Gives a layer the parameters of another one under other names.
void take(const Built& to, const Built& from, const std::map<std::string, std::string>& names) {
  const torch::NoGradGuard no_grad;
  for (const auto& [own, other] : names) to[own].copy_(from[other]);
}

TEST(RnnTest, CellsAreTheLayersOfTheSameName) {
  torch::manual_seed(1);
  const Tensor x = random({3, 5, 2});
  const Tensor mask = torch::tensor({{1, 1, 0, 0, 1}, {1, 0, 1, 1, 1}, {1, 1, 1, 1, 1}}).to(torch::kBool);
  const std::map<std::string, std::string> weights = {{"cell.weight_ih", "weight_ih_l0"},
                                                      {"cell.weight_hh", "weight_hh_l0"}};
  for (const bool sequences : {false, true}) {
    const Built lstm = build(LSTM({.units = 4, .return_sequences = sequences}), {5, 2});
    const Built cells = build(RNN(LSTMCell({.units = 4}), {.return_sequences = sequences}), {5, 2});
    expect_shape(cells, {5, 2});
    take(cells, lstm, weights);
    take(cells, lstm, {{"cell.bias", "bias_ih_l0"}});
    expect_close(cells(x), lstm(x));
    expect_close(cells.module->forward_masked(x, mask), lstm.module->forward_masked(x, mask));
    const Built gru = build(GRU({.units = 4, .return_sequences = sequences, .bias_initializer = "uniform"}), {5, 2});
    const Built gru_cells = build(RNN(GRUCell({.units = 4}), {.return_sequences = sequences}), {5, 2});
    take(gru_cells, gru, weights);
    take(gru_cells, gru, {{"cell.bias_ih", "bias_ih_l0"}, {"cell.bias_hh", "bias_hh_l0"}});
    expect_close(gru_cells(x), gru(x));
    expect_close(gru_cells.module->forward_masked(x, mask), gru.module->forward_masked(x, mask));
  }
}

TEST(RnnTest, SimpleRnnIsLibTorchs) {
  torch::manual_seed(2);
  const Built layer = build(SimpleRNN({.units = 4, .return_sequences = true}), {5, 3});
  expect_shape(layer, {5, 3});
  torch::nn::RNN own(torch::nn::RNNOptions(3, 4).batch_first(true));
  own->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    auto parameters = own->named_parameters();
    parameters["weight_ih_l0"].copy_(layer["cell.weight_ih"]);
    parameters["weight_hh_l0"].copy_(layer["cell.weight_hh"]);
    parameters["bias_ih_l0"].copy_(layer["cell.bias"]);
    parameters["bias_hh_l0"].zero_();
  }
  const Tensor x = random({2, 5, 3});
  expect_close(layer(x), std::get<0>(own->forward(x)));
}

// Cho's own form: the gate is applied before the product.
TEST(RnnTest, TheResetGateMayComeFirst) {
  torch::manual_seed(3);
  const Built layer = build(RNN(GRUCell({.units = 3, .reset_after = false, .bias_initializer = "uniform"})), {1, 2});
  EXPECT_FALSE(layer["cell.bias_hh"].defined());
  const Graph started = graph(RNN(GRUCell({.units = 3, .reset_after = false})), {{1, 2}, {3}});
  const torch::NoGradGuard no_grad;
  for (const auto& item : started.module->named_parameters()) item.value().copy_(layer[item.key()]);
  const Tensor x = random({2, 1, 2}), h = random({2, 3});
  const Tensor w = layer["cell.weight_ih"], u = layer["cell.weight_hh"], b = layer["cell.bias_ih"];
  const auto gate = [&](int64_t i) {
    return torch::linear(x.select(1, 0), w.narrow(0, 3 * i, 3), b.narrow(0, 3 * i, 3));
  };
  const Tensor r = torch::sigmoid(gate(0) + torch::linear(h, u.narrow(0, 0, 3)));
  const Tensor z = torch::sigmoid(gate(1) + torch::linear(h, u.narrow(0, 3, 3)));
  const Tensor n = torch::tanh(gate(2) + torch::linear(r * h, u.narrow(0, 6, 3)));
  expect_close(started.module->forward_values({.tensors = {x, h}}).tensors[0], z * h + (1 - z) * n);
}

TEST(RnnTest, TakesAndGivesStates) {
  torch::manual_seed(4);
  const Layer layer = RNN(StackedRNNCells({LSTMCell({.units = 3}), GRUCell({.units = 2})}),
                          {.return_sequences = true, .return_state = true});
  const Graph all = graph(layer, {{6, 4}});
  EXPECT_EQ(all.outputs, (std::vector<Shape>{{6, 2}, {3}, {3}, {2}}));
  const Graph rest = graph(layer, {{-1, 4}, {3}, {3}, {2}});
  const torch::NoGradGuard no_grad;
  for (const auto& item : rest.module->named_parameters())
    item.value().copy_(all.module->named_parameters()[item.key()]);
  const Tensor x = random({2, 6, 4});
  const LayerValues whole = all.module->forward_values({.tensors = {x}});
  // Two halves, of which the second one begins where the first one ends.
  LayerValues half = all.module->forward_values({.tensors = {x.slice(1, 0, 3)}});
  const Tensor first = half.tensors[0];
  half.tensors[0] = x.slice(1, 3, 6);
  const LayerValues second = rest.module->forward_values({.tensors = half.tensors});
  expect_close(torch::cat({first, second.tensors[0]}, 1), whole.tensors[0]);
  for (std::size_t i = 1; i < 4; ++i) expect_close(second.tensors[i], whole.tensors[i]);
  expect_error<InvalidArgument>(
      [&] {
        graph(layer, {{6, 4}, {3}});
      },
      "the initial states are [3] an example, wanted [3], [3], [2]");
  expect_error<InvalidArgument>([&] { build(layer, {6, 4}); }, "it has 4 outputs");
  expect_error<InvalidArgument>([&] { all.module->forward_values({.tensors = {x, x}}); }, "got 1 initial states");
}

TEST(RnnTest, DropoutHasOneMaskForAllSteps) {
  torch::manual_seed(5);
  const Built layer = build(SimpleRNN({.units = 1,
                                       .activation = "linear",
                                       .kernel_initializer = "ones",
                                       .recurrent_initializer = "zeros",
                                       .dropout = 0.5,
                                       .return_sequences = true}),
                            {6, 8});
  const Tensor y = layer(torch::ones({20, 6, 8}, torch::kDouble)).squeeze(-1);
  expect_close(y, y.select(1, 0).unsqueeze(1).expand({20, 6}));
  EXPECT_GT(y.std().item<double>(), 0.5);
  layer.module->eval();
  expect_close(layer(torch::ones({20, 6, 8}, torch::kDouble)), torch::full({20, 6, 1}, 8.0, torch::kDouble));
  const Built states = build(SimpleRNN({.units = 4, .recurrent_dropout = 0.5}), {6, 8});
  const Tensor x = random({20, 6, 8});
  EXPECT_FALSE(torch::equal(states(x), states(x)));
}

TEST(RnnTest, ConvLstmKeepsToShapes) {
  const Layer layer = ConvLSTM2D({.filters = 3,
                                  .kernel_size = {3, 2},
                                  .strides = 2,
                                  .padding = Padding::kSame,
                                  .dropout = 0.2,
                                  .recurrent_dropout = 0.2,
                                  .return_sequences = true});
  expect_shape(build(layer, {4, 2, 5, 6}), {4, 2, 5, 6});
  expect_error<InvalidArgument>([&] { build(layer, {4, 2, 5}); }, "[channels, height, width]");
  expect_error<InvalidArgument>([] { ConvLSTM2D({.filters = 2}); }, "kernel_size must be positive");
}

// A cell of the user's: sums of its inputs.
class SumModule final : public RNNCellModule {
 public:
  Tensor step(const Tensor& x, std::vector<Tensor>& states, RNNCellMemo& /*memo*/) override {
    states = {states.empty() ? x : states[0] + x};
    return states[0];
  }
};
class SumKind final : public RNNCellKind {
 public:
  std::string_view type() const override { return "Sum"; }
  std::string_view base_name() const override { return "sum"; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::vector<Shape> state_shapes(const BuildContext& context) const override { return {context.input}; }
  std::shared_ptr<RNNCellModule> build_cell(const BuildContext& /*context*/) const override {
    return std::make_shared<SumModule>();
  }
};

TEST(RnnTest, TakesCellsOfTheUsers) {
  const Layer cell(std::make_shared<SumKind>());
  const Tensor x = random({2, 5, 3});
  expect_close(build(RNN(cell, {.return_sequences = true}), {5, 3})(x), x.cumsum(1));
  EXPECT_FALSE(cell.kind().options().has_value());  // no file can hold it
  EXPECT_TRUE(LSTMCell({.units = 2}).kind().options().has_value());
  expect_error<InvalidArgument>([] { RNN(Dense(3)); }, "RNN: wants a cell, such as LSTMCell, got a Dense");
  expect_error<InvalidArgument>([] { StackedRNNCells({}); }, "there are no cells");
  expect_error<InvalidArgument>([] { LSTMCell({.units = 0}); }, "LSTMCell: units must be positive");
  expect_error<InvalidArgument>([] { SimpleRNN({.units = 1, .dropout = 1.0}); }, "dropout must be in [0, 1), got 1");
}

TEST(RnnTest, TrainsInASequential) {
  torch::manual_seed(6);
  Sequential model({Embedding({.input_dim = 5, .output_dim = 3, .mask_zero = true}),
                    RNN(LSTMCell({.units = 4}), {.return_sequences = true}),
                    SimpleRNN({.units = 4, .kernel_regularizer = "l2"}), Dense(2)},
                   {.dtype = torch::kDouble});
  model.compile(
      {.optimizer = Adam({.learning_rate = 0.05}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  const Tensor words = torch::tensor({{3, 1, 0, 0}, {2, 0, 0, 0}, {1, 2, 3, 4}, {4, 4, 0, 0}});
  const History history =
      model.fit(words, torch::tensor({0, 1, 0, 1}), {.epochs = 40, .verbose = Verbose::kSilent, .batch_size = 4});
  EXPECT_LT(history["loss"].back(), 0.5 * history["loss"].front());
}

// An encoder, whose states begin a decoder that attends to its outputs: the same on one replica and on two.
TEST(RnnTest, StatesAndAttentionJoinSequencesInAFunctional) {
  const auto fitted = [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    torch::manual_seed(7);
    const SymbolicTensor source = Input({5, 3}, {.name = "source"}), target = Input({4, 2}, {.name = "target"});
    const std::vector<SymbolicTensor> encoded =
        call_for_all(RNN(LSTMCell({.units = 6}), {.return_sequences = true, .return_state = true}), {source});
    const SymbolicTensor decoded =
        RNN(LSTMCell({.units = 6}), {.return_sequences = true})({target, encoded[1], encoded[2]});
    const SymbolicTensor attended = DotProductAttention({.use_scale = true})({decoded, encoded[0]});
    Functional model({source, target}, Dense(2)(attended), {.dtype = torch::kDouble});
    model.compile({.optimizer = SGD({.learning_rate = 0.5}), .loss = MeanSquaredError()});
    const auto waves = [](int64_t steps, int64_t size) {
      return torch::arange(8 * steps * size, torch::kDouble).sin().view({8, steps, size});
    };
    const Dataset data =
        Dataset::from_tensor_slices({.y = waves(4, 2), .inputs = {{"source", waves(5, 3)}, {"target", waves(4, 2)}}});
    const History history = model.fit(data.batch(8), {.epochs = 5, .verbose = Verbose::kSilent});
    EXPECT_LT(history["loss"].back(), history["loss"].front());
    return model.weights();
  };
  const NamedTensors one = fitted(OneDeviceStrategy("/CPU:0"));
  const NamedTensors two = fitted(MirroredStrategy({.devices = cpu_devices(2)}));
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) expect_close(one[i].second, two[i].second, 1e-9);
}

}  // namespace
}  // namespace cohort::rnn_test
