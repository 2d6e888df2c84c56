// BERT, whose loss leaves masked tokens out, its training, and what it has to come to.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "cohort/cohort.h"
#include "cohort/models/zoo.h"
#include "tests/equivalence/mesh_runs.h"

namespace cohort::equivalence::bert_runs {

// Every run begins with the same values, which a generator of the caller's own draws.
inline NamedTensors first_values(NamedTensors state) {
  for (auto& [name, value] : state) {
    if (!value.is_floating_point()) continue;
    const at::Generator own = mesh_runs::generator(name.size() + static_cast<std::size_t>(value.numel()));
    const bool is_matrix = value.dim() > 1;
    const double width = is_matrix ? std::sqrt(12.0 / static_cast<double>(value[0].numel())) : 0.5;
    value = (torch::rand(value.sizes(), own, torch::kDouble) - (is_matrix ? 0.5 : -1.0)) * width;
  }
  return state;
}

inline constexpr int64_t kTokens = 20, kLength = 6, kMasked = 3;

inline models::BertOptions bert_options() {
  return {.vocab_size = kTokens,
          .hidden_size = 8,
          .num_layers = 3,
          .num_heads = 2,
          .intermediate_size = 12,
          .dropout = 0.0,
          .attention_dropout = 0.0,
          .max_positions = kLength};
}

// Examples with padding, and with masked positions that do not count; one has none that counts.
inline Dataset texts() {
  constexpr int64_t kRows = 2 * 9 + 1;
  const at::Generator own = mesh_runs::generator(7);
  const auto whole = [&](int64_t most, at::IntArrayRef sizes) {
    return torch::randint(most, sizes, own, torch::kLong);
  };
  torch::Tensor input_mask = whole(4, {kRows, kLength}).gt(0).to(torch::kLong);
  input_mask.select(1, 0).fill_(1);
  torch::Tensor counts = whole(3, {kRows, kMasked}).gt(0);
  counts.select(0, 4).fill_(false);
  return Dataset::from_tensor_slices(
             {.inputs = {{"input_word_ids", whole(kTokens, {kRows, kLength})},
                         {"input_mask", input_mask},
                         {"input_type_ids", whole(2, {kRows, kLength})},
                         {"masked_lm_positions", whole(kLength, {kRows, kMasked})}},
              .targets = {{"mlm_logits", whole(kTokens, {kRows, kMasked})}, {"next_sentence", whole(2, {kRows})}},
              .masks = {{"mlm_logits", counts}}})
      .batch(9);
}

struct Learned {
  History history;
  NamedTensors weights;
};

inline Learned train_bert(const Strategy& strategy) {
  const auto scope = strategy.scope();
  Model model([] {
    auto made = models::bert(bert_options());
    made->to(torch::kDouble);
    return made;
  });
  model.set_weights(first_values(model.weights()));
  const SparseCategoricalCrossentropyOptions of_logits{.from_logits = true};
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .losses = {{"mlm_logits", SparseCategoricalCrossentropy(of_logits)},
                            {"next_sentence", SparseCategoricalCrossentropy(of_logits)}},
                 .output_metrics = {{"mlm_logits", {SparseCategoricalAccuracy()}}}});
  const History history =
      model.fit(texts(), {.epochs = 7, .validation_data = texts().take(2), .verbose = Verbose::kSilent});
  return {.history = history, .weights = model.weights()};
}

inline void expect_like(const Learned& got, const Learned& wanted) {
  for (const char* name : {"loss", "mlm_logits_loss", "next_sentence_loss", "val_mlm_logits_loss",
                           "mlm_logits_sparse_categorical_accuracy"}) {
    ASSERT_EQ(got.history[name].size(), wanted.history[name].size()) << name;
    for (std::size_t i = 0; i < wanted.history[name].size(); ++i) {
      EXPECT_NEAR(got.history[name][i], wanted.history[name][i], kClose) << name << ", " << i;
    }
  }
  expect_same(got.weights, wanted.weights);
}

}  // namespace cohort::equivalence::bert_runs
