// The decoder against Hugging Face's Llama (llama/make.py made the files), and its adapters.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/models/zoo.h"
#include "cohort/strategy.h"
#include "cohort/train.h"
#include "cohort/weights.h"
#include "tests/support/errors.h"

namespace cohort::models::decoder_test {
namespace {

using cohort::testing::expect_error;

const std::filesystem::path kFolder = "tests/wings/text/models/llama";

using Tensors = std::map<std::string, torch::Tensor>;

Tensors tensors_of(const std::string& file) {
  const NamedTensors list = load_weights(kFolder / file).tensors;
  return {list.begin(), list.end()};
}

DecoderOptions of_file(bool tied) {
  return {.vocab_size = 32,
          .hidden_size = 16,
          .intermediate_size = 24,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .tie_word_embeddings = tied};
}

DecoderOptions small(const LoraOptions& lora = {}) {
  return {.vocab_size = 11, .hidden_size = 8, .intermediate_size = 12, .num_layers = 2, .num_heads = 2, .lora = lora};
}

torch::Tensor tokens_of(int64_t examples, int64_t steps) {
  return torch::randint(11, {examples, steps}, torch::kLong);
}

// The logits, the loss of the next tokens, and gradients of all kinds of parameters.
TEST(Decoder, IsHuggingFacesLlama) {
  for (const bool tied : {false, true}) {
    const std::string name = tied ? "llama_tied" : "llama";
    Model model([tied] { return decoder(of_file(tied)); }, "decoder");
    model.load_weights(kFolder / (name + ".safetensors"));
    const Tensors expected = tensors_of(name + "_expected.safetensors");
    const auto module = std::dynamic_pointer_cast<LayerModule>(model.module().copies().front());
    ASSERT_NE(module, nullptr);
    const torch::Tensor& tokens = expected.at("tokens");
    const torch::Tensor logits = module->forward(tokens);
    EXPECT_LT((logits - expected.at("logits")).abs().max().item<double>(), 2e-5);
    torch::nll_loss(torch::log_softmax(logits.slice(1, 0, -1).flatten(0, 1), -1), tokens.slice(1, 1).flatten())
        .backward();
    const auto parameters = module->named_parameters();
    for (const auto& [key, parameter] : {std::pair("embed_tokens", "model.embed_tokens.weight"),
                                         {"k_proj", "model.layers.0.self_attn.k_proj.weight"},
                                         {"input_layernorm", "model.layers.1.input_layernorm.weight"}}) {
      const torch::Tensor wanted = expected.at(std::string("gradient.") + key);
      EXPECT_LT((parameters[parameter].grad() - wanted).abs().max().item<double>(), 2e-5) << name << " " << key;
    }
  }
}

TEST(Decoder, SeesNoLaterTokens) {
  torch::manual_seed(1);
  const auto module = decoder(small());
  torch::Tensor tokens = tokens_of(3, 9);
  const torch::Tensor before = module->forward(tokens);
  tokens.slice(1, 5) = (tokens.slice(1, 5) + 1).remainder(11);
  const torch::Tensor after = module->forward(tokens);
  EXPECT_TRUE(before.slice(1, 0, 5).equal(after.slice(1, 0, 5)));
  EXPECT_FALSE(before.slice(1, 5).equal(after.slice(1, 5)));
  EXPECT_EQ(module->forward(tokens.slice(0, 0, 0)).sizes(), (std::vector<int64_t>{0, 9, 11}));
}

TEST(Decoder, WithAdaptersBeginsAsItWasAndChangesNothingElse) {
  torch::manual_seed(1);
  Model plain([] { return decoder(small()); }, "decoder");
  Model adapted([] { return decoder(small({.rank = 2, .alpha = 4.0})); }, "decoder");
  adapted.set_weights(plain.weights(), /*strict=*/false);
  const torch::Tensor x = tokens_of(6, 7);
  const Example batch{.x = x.slice(1, 0, 6), .y = x.slice(1, 1)};
  EXPECT_TRUE(adapted.predict(batch.x).equal(plain.predict(batch.x)));

  adapted.compile(
      {.optimizer = Adam({.learning_rate = 0.01}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  const double first = adapted.train_on_batch(batch)["loss"];
  for (int i = 0; i < 20; ++i) adapted.train_on_batch(batch);
  EXPECT_LT(adapted.test_on_batch(batch)["loss"], first);
  std::map<std::string, torch::Tensor> before;
  for (const auto& [name, tensor] : plain.weights()) before[name] = tensor;
  int learned = 0;
  for (const auto& [name, tensor] : adapted.weights()) {
    if (name.find("lora_") == std::string::npos) {
      EXPECT_TRUE(tensor.equal(before.at(name))) << name;
      continue;
    }
    ++learned;
    EXPECT_GT(tensor.abs().max().item<double>(), 0.0) << name;
  }
  EXPECT_EQ(learned, 2 * 4 * 2);  // layers, projections, A and B
}

// The adapter of one projection, by hand.
TEST(Decoder, AdaptsWithTheScaledProductOfBothMatrices) {
  torch::manual_seed(1);
  const auto adapted = decoder(small({.rank = 2, .alpha = 6.0, .target_modules = {"down_proj"}}));
  const auto plain = decoder(small());
  const torch::NoGradGuard no_grad;
  const auto own = adapted->named_parameters();
  for (const auto& item : own) {
    if (item.key().ends_with("lora_B.weight")) item.value().detach().normal_();
  }
  const auto into = plain->named_parameters();
  for (const auto& item : into) {
    torch::Tensor wanted = own[item.key()].detach();
    const std::string at = item.key().substr(0, item.key().rfind('.') + 1);
    if (const torch::Tensor* a = own.find(at + "lora_A.weight"); a != nullptr) {
      wanted = wanted + 3.0 * own[at + "lora_B.weight"].matmul(*a);
    }
    item.value().detach().copy_(wanted);
  }
  const torch::Tensor tokens = tokens_of(2, 5);
  EXPECT_LT((adapted->forward(tokens) - plain->forward(tokens)).abs().max().item<double>(), 1e-5);
}

TEST(Decoder, DropsOnlyWhileTraining) {
  torch::manual_seed(1);
  DecoderOptions options = small({.rank = 2, .dropout = 0.5});
  options.dropout = 0.5;
  const auto module = decoder(options);
  const torch::Tensor tokens = tokens_of(2, 5);
  const MirroredStrategy strategy({.devices = cpu_devices(1)});
  strategy.run([&](Replica&) {
    module->eval();
    EXPECT_TRUE(module->forward(tokens).equal(module->forward(tokens)));
    module->train();
    EXPECT_FALSE(module->forward(tokens).equal(module->forward(tokens)));
  });
}

TEST(Decoder, RefusesWhatDoesNotFit) {
  expect_error<InvalidArgument>([] { decoder({.hidden_size = 12, .num_heads = 4}); },
                                "hidden_size is 12, wanted a multiple of 8");
  expect_error<InvalidArgument>([] { decoder({.num_heads = 4, .num_kv_heads = 3}); }, "num_kv_heads is 3");
  expect_error<InvalidArgument>([] { decoder({.num_layers = 0}); }, "num_layers is 0, wanted 1 or more");
  expect_error<InvalidArgument>([] { decoder({.dropout = 1.0}); }, "dropout is 1");
  expect_error<InvalidArgument>([] { decoder({.rope_theta = 0.0}); }, "rope_theta is 0");
  expect_error<InvalidArgument>([] { decoder({.lora = {.rank = 2, .target_modules = {"qkv"}}}); },
                                "lora.target_modules has qkv, wanted names of q_proj, k_proj");
  expect_error<InvalidArgument>([] { decoder({.lora = {.rank = -1}}); }, "lora.rank is -1");
  expect_error<InvalidArgument>(
      [] {
        decoder(small())->forward(torch::zeros({2, 3}));
      },
      "wanted tokens of an integer dtype, [examples, steps]");
}

}  // namespace
}  // namespace cohort::models::decoder_test
