// Models for text: those of Llama and BERT in Hugging Face's transformers, with its names and arithmetic. Dropout draws
// from the generator of the replica. New weights are drawn as transformers draw them, from LibTorch's default
// generator. InvalidArgument: options or an input do not fit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cohort/models/named_module.h"
#include "cohort/parallel/axes.h"
#include "cohort/train/layers/layer.h"

namespace cohort::models {

// Adapters of low rank beside frozen matrices: E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models"
// (2021). With a rank above 0 a projection W x becomes W x + alpha / rank * B A x, where A and B (lora_A.weight and
// lora_B.weight beside W, as in Hugging Face's peft) are all that learns; B starts at zero.
struct LoraOptions {
  int64_t rank = 0;      // rows of A and columns of B; 0: there are no adapters, and everything learns
  double alpha = 16.0;   // the weight of the adapters is alpha / rank
  double dropout = 0.0;  // part of the adapters' input that is set to zero while training
  // The projections that get adapters, by their names.
  std::vector<std::string> target_modules = {"q_proj", "k_proj", "v_proj", "o_proj"};
};

// Changes to the angles of rotary positions, for more positions than a model was trained with.
struct RopeScaling {
  std::string type;                    // "linear", "dynamic" (by the steps of the input) or "llama3"; empty: none
  double factor = 1.0;                 // how many times more positions, 1 or more
  double low_freq_factor = 1.0;        // llama3: angles of at most so many turns in the training are divided by factor
  double high_freq_factor = 4.0;       // llama3: angles of at least so many turns stay
  int64_t original_max_positions = 0;  // dynamic and llama3: the positions of the training
};

struct DecoderOptions {
  int64_t vocab_size = 256;         // tokens; 256: bytes
  int64_t hidden_size = 256;        // size of a token's vector
  int64_t intermediate_size = 688;  // size of the hidden layer of a block
  int64_t num_layers = 4;           // blocks of attention and dense layers
  int64_t num_heads = 4;            // heads of attention
  int64_t num_kv_heads = 0;         // heads of keys and values, a divisor of num_heads; 0: num_heads
  int64_t head_dim = 0;             // size of a head, even; 0: hidden_size / num_heads
  bool attention_bias = false;      // whether q_proj, k_proj, v_proj and o_proj have biases
  bool qkv_bias = false;            // whether q_proj, k_proj and v_proj have biases, as in Qwen2
  bool mlp_bias = false;            // whether gate_proj, up_proj and down_proj have biases
  double rope_theta = 10'000.0;     // base of the angles that tell positions apart
  RopeScaling rope_scaling = {};    // changes to these angles
  double norm_epsilon = 1e-5;       // epsilon of the norms
  double initializer_range = 0.02;  // deviation of the normal distribution that new matrices are drawn from
  double dropout = 0.0;             // part of what a block adds that is set to zero while training
  bool tie_word_embeddings = true;  // the matrix of the embeddings gives the logits, too
  bool remat = false;     // compute blocks again in backward instead of keeping their activations (cohort::remat)
  LoraOptions lora = {};  // adapters instead of learning everything
};
// Makes a decoder for language modelling, a Llama: H. Touvron et al., "Llama 2" (2023), with rotary positions (J. Su et
// al., "RoFormer", 2021), root mean square norms, gated dense layers and heads that share keys and values. Parameters
// have the names, shapes and arithmetic of LlamaForCausalLM of Hugging Face's transformers, so that its safetensors
// load. It takes tokens [examples, steps] of an integer dtype, any number of steps, and returns the logits of the token
// after each, [examples, steps, vocab_size]. A token outside the vocabulary is an error of LibTorch's.
std::shared_ptr<LayerModule> decoder(const DecoderOptions& options = {});
// Returns the options of the model that a folder of Hugging Face's has, which its config.json describes: a Llama, a
// Mistral or a Qwen2. Unimplemented names a key that asks for something that decoder() does not do, InvalidArgument one
// whose value makes no sense, NotFound one that is missing. Keys that are not known are named in a warning.
DecoderOptions decoder_options(const std::filesystem::path& folder);

struct BertOptions {
  int64_t vocab_size = 30'522;                    // tokens
  int64_t hidden_size = 768;                      // size of a token's vector
  int64_t num_layers = 12;                        // blocks of attention and dense layers
  int64_t num_heads = 12;                         // heads of attention, a divisor of hidden_size
  int64_t intermediate_size = 3072;               // size of the hidden layer of a block
  Activation activation = Activation::kGelu;      // activation of that layer
  double dropout = 0.1;                           // part of embeddings and of what a block adds that is set to zero
  double attention_dropout = 0.1;                 // part of the weights of attention that is set to zero
  int64_t max_positions = 512;                    // the most tokens of an example
  int64_t type_vocab_size = 2;                    // types of tokens: the first and the second text
  double norm_epsilon = 1e-12;                    // epsilon of the norms
  double initializer_range = 0.02;                // deviation of the normal distribution that matrices start from
  Activation mlm_activation = Activation::kGelu;  // activation of the head for masked tokens
  double mlm_initializer_range = 0.02;            // deviation for the matrix of that head
  bool next_sentence = true;  // whether there is a head that tells whether the texts belong together
  bool remat = false;         // as DecoderOptions::remat
};
// Makes an encoder for masked language modelling: J. Devlin et al., "BERT" (2018). Parameters have the names, shapes
// and arithmetic of BertForPreTraining of Hugging Face's transformers, without next_sentence those of BertForMaskedLM.
// The inputs, by Model Garden's names and of integer dtypes: input_word_ids, input_mask (0: padding) and
// input_type_ids, [examples, tokens], and masked_lm_positions, [examples, masked], numbers of tokens. The outputs:
// mlm_logits [examples, masked, vocab_size], and with next_sentence the logits next_sentence [examples, 2]. A token
// outside the vocabulary is an error of LibTorch's.
std::shared_ptr<NamedModule> bert(const BertOptions& options = {});
// Returns the options of the BERT of a folder of Hugging Face's; as decoder_options(). Its config.json does not tell
// next_sentence, which is true.
BertOptions bert_options(const std::filesystem::path& folder);

}  // namespace cohort::models

// Which parameters a mesh cuts, and where a pipeline cuts the layers:
//
//   const cohort::models::DecoderOptions options{.num_heads = 8};
//   const cohort::MeshStrategy strategy(mesh, {.layout = cohort::layouts::transformer(options)});
namespace cohort::layouts {

// Returns the layout of decoder(): attention by heads, and the hidden layers by columns and rows, as in Megatron-LM
// (Shoeybi et al., arXiv:1909.08053); adapters are cut with their matrices. Norms are whole, and so are embeddings
// and the head unless `cuts_vocabulary`: then each replica has some words, and a cross-entropy of logits takes them in
// parts. The size of the axis divides num_heads, num_kv_heads and intermediate_size, and then vocab_size; mirror() says
// what would fit where it does not.
LayoutMap transformer(const models::DecoderOptions& options, const std::string& axis = "model",
                      bool cuts_vocabulary = false);
// Returns the layout of bert(); the size of the axis divides num_heads and intermediate_size, and vocab_size if the
// words' embeddings and the logits of hidden tokens, which share them, are cut by words (`cuts_vocabulary`).
LayoutMap transformer(const models::BertOptions& options, const std::string& axis = "model",
                      bool cuts_vocabulary = false);

// Returns the places where a pipeline cuts a model into so many chunks of about as many blocks, for
// PipelineOptions::cut. The first chunk has the embedding, the last one the head. InvalidArgument: there are not so
// many blocks.
std::vector<std::string> pipeline_cut(const models::DecoderOptions& options, int chunks);
std::vector<std::string> pipeline_cut(const models::BertOptions& options, int chunks);

}  // namespace cohort::layouts
