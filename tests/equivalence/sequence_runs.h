// Transformers whose positions are divided, their training, and what it has to come to.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>

#include "cohort/cohort.h"
#include "cohort/models/zoo.h"
#include "tests/equivalence/outcomes.h"

namespace cohort::equivalence::sequence_runs {

inline constexpr int64_t kEpochs = 4;
inline constexpr int64_t kRows = 4 * 4 + 1;  // five steps a pass; the last batch leaves a share empty
inline constexpr int64_t kSteps = 13;
inline constexpr int64_t kTokens = 11;

struct Net {
  std::string name;
  std::function<Model()> make;
};

// The zoo's decoder in float64.
inline Model small_decoder(const models::DecoderOptions& options) {
  return Model([options] {
    const auto made = models::decoder(options);
    made->to(torch::kDouble);
    return made;
  });
}

inline models::DecoderOptions small(bool remat = false) {
  return {.vocab_size = kTokens,
          .hidden_size = 12,
          .intermediate_size = 10,
          .num_layers = 2,
          .num_heads = 6,
          .num_kv_heads = 2,
          .initializer_range = 0.3,
          .remat = remat};
}

// Words that two replicas divide; there is one more than there are tokens.
inline models::DecoderOptions of_even_words() {
  models::DecoderOptions options = small();
  options.vocab_size = kTokens + 1;
  return options;
}

// Layers of one's own, with masks of padding; a loss that has them.
inline Model layers(bool causal, double dropout = 0.0) {
  const MultiHeadAttentionOptions attention{.num_heads = 6, .key_dim = 2, .use_causal_mask = causal};
  Sequential model(
      {Embedding({.input_dim = kTokens, .output_dim = 8, .mask_zero = true}), MultiHeadAttention(attention),
       LayerNormalization(), Dense(10, Activation::kGelu), Dropout(dropout), RMSNormalization(), Dense(kTokens)},
      {.dtype = torch::kDouble});
  model.build({kSteps}, torch::kLong);
  return model;
}

inline Dataset batches() {
  const at::Generator own = at::make_generator<at::CPUGeneratorImpl>(7);
  const torch::Tensor x = torch::randint(kTokens, {kRows, kSteps}, own, torch::kLong);
  const torch::Tensor y = torch::randint(kTokens, {kRows, kSteps}, own, torch::kLong);
  return Dataset::from_tensor_slices(x, y).batch(4);
}

inline Outcome under(const Strategy& strategy, const Net& net) {
  return trained_under(strategy, net.make, batches, kEpochs);
}

}  // namespace cohort::equivalence::sequence_runs
