// Initial and returned states of recurrent layers, held to Keras (recurrent_states_facts.py).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/error.h"
#include "cohort/train.h"
#include "tests/support/drawn.h"
#include "tests/support/errors.h"

namespace cohort::recurrent_states_test {
namespace {

using nlohmann::json;
using testing::drawn;
using testing::expect_error;

const FunctionalOptions kDouble = {.dtype = torch::kDouble};

json facts(const std::string& part) {
  const auto file = std::filesystem::path(__FILE__).parent_path() / "recurrent_states_facts.json";
  return json::parse(std::ifstream(file)).at(part);
}

void flatten(const json& list, std::vector<double>& numbers) {
  if (!list.is_array()) return numbers.push_back(list.get<double>());
  for (const json& each : list) flatten(each, numbers);
}

void expect_numbers(const torch::Tensor& own, const json& wanted, double within, const std::string& what) {
  std::vector<double> numbers;
  flatten(wanted, numbers);
  ASSERT_EQ(own.numel(), static_cast<int64_t>(numbers.size())) << what;
  EXPECT_TRUE(torch::allclose(own.flatten(), torch::tensor(numbers, torch::kDouble), 0.0, within)) << what << own;
}

// Draws the weights. "layer": the models' name of a layer that is left out of the names.
void set_drawn(const Model& model, const std::string& layer = "") {
  NamedTensors weights = model.weights();
  for (auto& [name, tensor] : weights) {
    const bool unused = name.ends_with("bias_hh_l0") && (tensor == 0).all().item<bool>() && model.name() != "gru";
    const std::string own = layer.empty() ? name : name.substr(layer.size() + 1);
    tensor = unused ? torch::zeros_like(tensor) : drawn(own, tensor.sizes().vec());
  }
  model.set_weights(weights);
}

struct Case {
  explicit Case(const json& fact)
      : sort(fact.at("layer")),
        both(fact.at("bidirectional")),
        sequences(fact.at("sequences")),
        backwards(fact.at("backwards")) {}

  Layer layer() const {
    const Layer one =
        sort == "LSTM"
            ? LSTM({.units = 3, .return_sequences = sequences, .return_state = true, .go_backwards = backwards})
        : sort == "GRU"
            ? GRU({.units = 3, .return_sequences = sequences, .return_state = true, .go_backwards = backwards})
            : SimpleRNN({.units = 3, .return_sequences = sequences, .return_state = true, .go_backwards = backwards});
    return (both ? Bidirectional(one) : one).named("it");
  }

  std::string sort;
  bool both, sequences, backwards;
};

TEST(RecurrentStates, AreKeras) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const torch::Tensor mask = torch::tensor({{1, 1, 0, 0}, {1, 0, 1, 1}, {1, 1, 1, 1}}).to(torch::kBool);
  const json all = facts("layers");
  EXPECT_EQ(all.size(), 30U);
  for (const json& fact : all) {
    const Case given(fact);
    const std::string what = fact.dump().substr(0, 110);
    const SymbolicTensor x = Input({-1, 2}, {.name = "x"}), seen = Input({-1}, {.dtype = torch::kBool, .name = "seen"});
    std::vector<SymbolicTensor> inputs = {x}, called = {x};
    NamedTensors values = {{"x", drawn("x", {3, 4, 2})}};
    const std::size_t states = (given.sort == "LSTM" ? 2 : 1) * (given.both ? 2 : 1);
    for (std::size_t i = 0; i < states; ++i) {
      const std::string name = "state" + std::to_string(i);
      called.push_back(Input({3}, {.name = name}));
      inputs.push_back(called.back());
      values.emplace_back(name, drawn(name, {3, 3}));
    }
    SymbolicCall call;
    if (fact.at("masked")) {
      inputs.push_back(seen);
      values.emplace_back("seen", mask);
      call.masks = {seen};
    }
    const Functional model(inputs, call_for_all(given.layer(), called, call),
                           {.name = given.sort == "GRU" ? "gru" : "other", .dtype = torch::kDouble});
    set_drawn(model, "it");
    const NamedTensors outputs = model(values);
    ASSERT_EQ(outputs.size(), fact.at("outputs").size()) << what;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      expect_numbers(outputs[i].second, fact["outputs"][i], 1e-10, what + " output " + std::to_string(i));
    }
  }
}

torch::Tensor rows_of(const torch::Tensor& tokens, int64_t count) {
  return torch::one_hot(tokens, count).to(torch::kDouble);
}

// The example "Character-level recurrent sequence-to-sequence model" of keras.io.
struct SequenceToSequence {
  static constexpr int64_t kTokens = 5, kLatent = 6;

  SymbolicTensor encoder_inputs = Input({-1, kTokens}, {.name = "read"});
  std::vector<SymbolicTensor> encoded =
      call_for_all(LSTM({.units = kLatent, .return_state = true, .name = "encoder"}), {encoder_inputs});
  SymbolicTensor decoder_inputs = Input({-1, kTokens}, {.name = "given"});
  Layer lstm = LSTM({.units = kLatent, .return_sequences = true, .return_state = true, .name = "decoder"});
  Layer dense = Dense({.units = kTokens, .activation = "softmax", .name = "dense"});
  std::vector<SymbolicTensor> decoded = call_for_all(lstm, {decoder_inputs, encoded[1], encoded[2]});
  Functional model{{encoder_inputs, decoder_inputs}, dense(decoded[0]), kDouble};

  Example examples() const {
    const torch::Tensor i = torch::arange(12).unsqueeze(1), j = torch::arange(4).unsqueeze(0);
    const torch::Tensor read = (i * 3 + i * j + j * j * 5) % (kTokens - 1) + 1;
    const torch::Tensor wanted = read % (kTokens - 1) + 1;
    const torch::Tensor given = torch::cat({torch::zeros({12, 1}, torch::kLong), wanted.slice(1, 0, 3)}, 1);
    return {.y = rows_of(wanted, kTokens),
            .inputs = {{"read", rows_of(read, kTokens)}, {"given", rows_of(given, kTokens)}}};
  }

  History fit() {
    set_drawn(model);
    model.compile(
        {.optimizer = RMSprop({.learning_rate = 0.02}), .loss = "categorical_crossentropy", .metrics = {"accuracy"}});
    return model.fit(examples(), {.epochs = 20, .verbose = Verbose::kSilent, .batch_size = 6, .shuffle = false});
  }
};

void expect_history(const History& own, const json& wanted) {
  for (std::size_t epoch = 0; epoch < 20; ++epoch) {
    EXPECT_NEAR(own["loss"].at(epoch), wanted["history"]["loss"][epoch], 1e-6) << epoch;
    EXPECT_NEAR(own["accuracy"].at(epoch), wanted["history"]["accuracy"][epoch], 1e-6) << epoch;
  }
}

TEST(RecurrentStates, TranslateSequences) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const json wanted = facts("sequence_to_sequence");
  SequenceToSequence trained;
  expect_history(trained.fit(), wanted);

  const Functional encoder(trained.encoder_inputs, {trained.encoded[1], trained.encoded[2]}, kDouble);
  const SymbolicTensor h = Input({SequenceToSequence::kLatent}, {.name = "h"});
  const SymbolicTensor c = Input({SequenceToSequence::kLatent}, {.name = "c"});
  const std::vector<SymbolicTensor> step = call_for_all(trained.lstm, {trained.decoder_inputs, h, c});
  const Functional decoder({trained.decoder_inputs, h, c}, {trained.dense(step[0]), step[1], step[2]}, kDouble);
  NamedTensors states = encoder({{"read", trained.examples().inputs[0].second.slice(0, 0, 3)}});
  torch::Tensor target = rows_of(torch::zeros({3, 1}, torch::kLong), SequenceToSequence::kTokens);
  for (std::size_t i = 0; i < 4; ++i) {
    const NamedTensors outputs = decoder({{"given", target}, {"h", states[0].second}, {"c", states[1].second}});
    const torch::Tensor chances = outputs[0].second.select(1, 0), best = chances.argmax(-1, /*keepdim=*/true);
    expect_numbers(chances.detach(), wanted["chances"][i], 1e-6, "chances");
    expect_numbers(best.to(torch::kDouble), wanted["decoded"][i], 0.0, "decoded");
    target = rows_of(best, SequenceToSequence::kTokens);
    states = {outputs[1], outputs[2]};
  }
}

TEST(RecurrentStates, TranslateSequencesUnderReplicas) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  SequenceToSequence trained;
  expect_history(trained.fit(), facts("sequence_to_sequence"));
}

TEST(RecurrentStates, HaveToFit) {
  const SymbolicTensor x = Input({-1, 2}), two = Input({2}), three = Input({3});
  expect_error<InvalidArgument>([&] { (void)LSTM(3)({x, three}); }, "the initial states are [3] an example, wanted");
  expect_error<InvalidArgument>([&] { (void)GRU(3)({x, two}); }, "the initial states are [2] an example, wanted [3]");
  expect_error<InvalidArgument>(
      [&] {
        (void)Bidirectional(GRU(3))({x, three});
      },
      "got 1 initial states, wanted as many for each direction");
  expect_error<InvalidArgument>(
      [&] {
        (void)Bidirectional(LSTM(3))({x, three, three});
      },
      "the initial states are [3] an example, wanted [3], [3]");
}

// A replica may have no examples, and a sequence no steps.
TEST(RecurrentStates, OfNothing) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  const SymbolicTensor x = Input({-1, 2}, {.name = "x"}), start = Input({3}, {.name = "start"});
  const Functional model(
      {x, start}, call_for_all(GRU({.units = 3, .return_sequences = true, .return_state = true}), {x, start}), kDouble);
  const NamedTensors none = model({{"x", torch::zeros({0, 4, 2})}, {"start", torch::zeros({0, 3})}});
  EXPECT_EQ(none[0].second.sizes(), (std::vector<int64_t>{0, 4, 3}));
  EXPECT_EQ(none[1].second.sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_TRUE(none[1].second.requires_grad());
  const torch::Tensor state = drawn("state", {2, 3});
  const NamedTensors still = model({{"x", torch::zeros({2, 0, 2})}, {"start", state}});
  EXPECT_TRUE(still[1].second.equal(state));
}

}  // namespace
}  // namespace cohort::recurrent_states_test
