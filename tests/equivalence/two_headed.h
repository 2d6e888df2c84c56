// Models with two inputs and two outputs, by position and by name, and what a training of them comes to.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>

#include "cohort/cohort.h"

namespace cohort::equivalence::two_headed {

constexpr int64_t kEpochs = 4;  // of 5 steps each
constexpr int64_t kTimes = 3;   // of the box, which is a sequence

struct TrunkImpl : torch::nn::Module {
  TrunkImpl() {
    image = register_module("image", torch::nn::Linear(6, 8));
    meta = register_module("meta", torch::nn::Linear(2, 8));
    label = register_module("label", torch::nn::Linear(8, 4));
    box = register_module("box", torch::nn::Linear(8, kTimes * 2));
    to(torch::kDouble);
    // The values come from a generator of their own: workers are threads here.
    auto generator = at::detail::createCPUGenerator(1);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) {
      parameter.copy_(torch::randn(parameter.sizes(), generator, torch::kDouble) * 0.4);
    }
  }
  std::tuple<torch::Tensor, torch::Tensor> heads(const torch::Tensor& a, const torch::Tensor& b) {
    const torch::Tensor hidden = torch::tanh(image(a.flatten(1)) + meta(b));
    return {label(hidden), box(hidden).view({-1, kTimes, 2})};
  }
  torch::nn::Linear image{nullptr}, meta{nullptr}, label{nullptr}, box{nullptr};
};

struct ByPositionImpl : TrunkImpl {
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& a, const torch::Tensor& b) {
    return heads(a, b);
  }
};
TORCH_MODULE(ByPosition);

struct ByNameImpl : TrunkImpl {
  std::map<std::string, torch::Tensor> forward(const NamedTensors& inputs) {
    const std::map<std::string, torch::Tensor> by_name(inputs.begin(), inputs.end());
    const auto [label, box] = heads(by_name.at("image"), by_name.at("meta"));
    return {{"class", label}, {"box", box}};
  }
};
TORCH_MODULE(ByName);

struct Kind {
  bool by_name = false;
  int64_t rows = 55;  // 12 a step, and a last one of 7 or 1
};

inline Dataset batches(int64_t rows) {
  auto generator = at::detail::createCPUGenerator(7);
  const auto drawn = [&](at::IntArrayRef shape) { return torch::randn(shape, generator, torch::kDouble); };
  torch::Tensor mask = drawn({rows, kTimes}) > -0.3;
  mask.select(0, 3).fill_(false);
  mask.select(0, 48).fill_(false);  // all of a last batch of one example
  return Dataset::from_tensor_slices({.weight = drawn({rows}).abs(),
                                      .inputs = {{"image", drawn({rows, 2, 3})}, {"meta", drawn({rows, 2})}},
                                      .targets = {{"box", drawn({rows, kTimes, 2})},
                                                  {"class", torch::randint(4, {rows}, generator, torch::kLong)}},
                                      .weights = {{"class", drawn({rows}).abs()}},
                                      .masks = {{"box", mask}}})
      .batch(12);
}

inline Model model(const Kind& kind) {
  Model made =
      kind.by_name ? Model([] { return ByName(); }) : Model([] { return ByPosition(); }, {.inputs = {"image", "meta"}});
  made.compile({.optimizer = Adam({.learning_rate = 0.02}),
                .losses = {{"class", SparseCategoricalCrossentropy({.from_logits = true})}, {"box", "mse"}},
                .loss_weights = {{"box", 0.7}},
                .output_metrics = {{"class", {SparseCategoricalAccuracy()}}, {"box", {"mae"}}},
                .weighted_output_metrics = {{"box", {RootMeanSquaredError()}}}});
  return made;
}

struct Outcome {
  History history;
  Logs evaluation;
  NamedTensors weights;
  NamedTensors predictions;
};

inline Outcome train(const Kind& kind, Model net) {
  Outcome outcome{.history = net.fit(batches(kind.rows),
                                     {.epochs = kEpochs, .validation_data = batches(50), .verbose = Verbose::kSilent})};
  EXPECT_EQ(net.optimizer().iterations(), 5 * kEpochs);
  outcome.evaluation = net.evaluate(batches(51), {.verbose = Verbose::kSilent});
  outcome.weights = net.weights();
  outcome.predictions = net.predict_outputs(batches(49));
  return outcome;
}

inline Outcome under(const Strategy& strategy, const Kind& kind) {
  const auto scope = strategy.scope();
  return train(kind, model(kind));
}

inline Outcome on_one_device(const Kind& kind) {
  return under(OneDeviceStrategy("/CPU:0"), kind);
}

inline void expect_like(const Outcome& got, const Outcome& wanted) {
  ASSERT_EQ(got.history.names(), wanted.history.names());
  for (const std::string& name : wanted.history.names()) {
    ASSERT_EQ(got.history[name].size(), static_cast<std::size_t>(kEpochs));
    for (std::size_t i = 0; i < got.history[name].size(); ++i) {
      EXPECT_NEAR(got.history[name][i], wanted.history[name][i], 1e-9) << name << " of epoch " << i;
    }
  }
  for (const auto& [name, value] : wanted.evaluation) EXPECT_NEAR(got.evaluation[name], value, 1e-9) << name;
  const auto expect_tensors = [](const NamedTensors& some, const NamedTensors& others) {
    ASSERT_EQ(some.size(), others.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
      EXPECT_EQ(some[i].first, others[i].first);
      EXPECT_TRUE(torch::allclose(some[i].second, others[i].second, 0.0, 1e-9)) << some[i].first;
    }
  };
  expect_tensors(got.weights, wanted.weights);
  expect_tensors(got.predictions, wanted.predictions);
}

}  // namespace cohort::equivalence::two_headed
