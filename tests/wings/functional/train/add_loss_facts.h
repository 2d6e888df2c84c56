// The variational autoencoder of add_loss_facts.py, and its numbers in Keras.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cohort/train.h"
#include "cohort/train/add_loss.h"
#include "tests/support/drawn.h"

namespace cohort::testing {

inline torch::Tensor sample(const torch::Tensor& mean, const torch::Tensor& log_var, const torch::Tensor& noise) {
  add_loss(-0.05 * (1 + log_var - mean.square() - log_var.exp()).mean());
  return mean + (0.5 * log_var).exp() * noise;
}

inline Model functional_autoencoder() {
  const SymbolicTensor x = Input({6}, {.name = "x"}), noise = Input({2}, {.name = "noise"});
  const SymbolicTensor h = Dense({.units = 5, .activation = "tanh", .name = "hidden"})(x);
  const SymbolicTensor mean = Dense({.units = 2, .name = "mean"})(h);
  const SymbolicTensor log_var = Dense({.units = 2, .name = "log_var"})(h);
  const Layer sampling = MergeLambda([](const auto& in) { return sample(in[0], in[1], in[2]); }, "sampling");
  const SymbolicTensor z = sampling({mean, log_var, noise});
  const Layer decoded = Dense({.units = 6, .kernel_regularizer = Regularizer::l2(0.0078125), .name = "decoded"});
  return Functional({x, noise}, decoded(z), {.dtype = torch::kDouble});
}

// The same as a module of a user's, which adds what the regularizer costs, too.
struct AutoencoderImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& noise) {
    const torch::Tensor h = hidden(x).tanh();
    add_loss(0.0078125 * decoded->weight.square().sum());
    return decoded(sample(mean(h), log_var(h), noise));
  }

  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(6, 5));
  torch::nn::Linear mean = register_module("mean", torch::nn::Linear(5, 2));
  torch::nn::Linear log_var = register_module("log_var", torch::nn::Linear(5, 2));
  torch::nn::Linear decoded = register_module("decoded", torch::nn::Linear(2, 6));
};

inline Model autoencoder_of_module() {
  const auto make = [] {
    auto module = std::make_shared<AutoencoderImpl>();
    module->to(torch::kDouble);
    return module;
  };
  return Model(make, ModelOptions{.inputs = {"x", "noise"}});
}

inline Example examples() {
  const torch::Tensor x = drawn("x", {10, 6});
  return {.y = x, .inputs = {{"x", x}, {"noise", drawn("noise", {10, 2})}}};
}

inline void prepare(Model& model) {
  NamedTensors weights = model.weights();
  for (auto& [name, tensor] : weights) tensor = drawn(name, tensor.sizes().vec());
  model.set_weights(weights);
  model.compile({.optimizer = SGD({.learning_rate = 0.25}), .loss = "mse"});
}

inline nlohmann::json add_loss_facts() {
  const auto file = std::filesystem::path(__FILE__).parent_path() / "add_loss_facts.json";
  return nlohmann::json::parse(std::ifstream(file));
}

// Expects Keras' numbers under the current strategy.
inline void expect_keras_numbers(Model model) {
  const nlohmann::json facts = add_loss_facts();
  prepare(model);
  constexpr double kWithin = 1e-9;
  EXPECT_NEAR(model.evaluate(examples(), {.verbose = Verbose::kSilent, .batch_size = 4})["loss"], facts["evaluate"],
              kWithin);
  const History history =
      model.fit(examples(), {.epochs = 4, .verbose = Verbose::kSilent, .batch_size = 4, .shuffle = false});
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    EXPECT_NEAR(history["loss"].at(epoch), facts["history"][epoch], kWithin) << epoch;
  }
  for (const auto& [name, tensor] : model.weights()) {
    const std::string layer = name.substr(0, name.rfind('.'));
    if (!name.ends_with("weight")) continue;
    for (int64_t unit = 0; unit < tensor.size(0); ++unit) {
      const auto wanted = facts["weights"][layer][static_cast<std::size_t>(unit)].get<std::vector<double>>();
      EXPECT_TRUE(torch::allclose(tensor[unit], torch::tensor(wanted, torch::kDouble), 0.0, 1e-9)) << name;
    }
  }
}

}  // namespace cohort::testing
