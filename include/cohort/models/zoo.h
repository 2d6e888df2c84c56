// Models for images and for text. The image classifiers' parameters have torchvision's names and their arithmetic is
// torchvision's (0.14), so that its weights, saved as safetensors, load into them and theirs into it. The decoder's and
// BERT's are those of Llama and BERT in Hugging Face's transformers.
//
//   cohort::Model model([] { return cohort::models::resnet50({.num_classes = 10}); });
//   model.load_weights("resnet50.safetensors");
//
// Those for images take images [examples, channels, height, width] of floating point, also no examples, and return
// logits [examples, num_classes], or with unet() [examples, num_classes, height, width]. Dropout and stochastic depth
// draw from the generator of the replica. New weights are drawn as torchvision or transformers draw them, from
// LibTorch's default generator. InvalidArgument: options or an input do not fit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/example.h"
#include "cohort/train/layers/layer.h"

namespace cohort::models {

// Changes to the batch norms and the activation of a model. A value that is not set is the model's own, as in
// torchvision.
struct NormActivation {
  std::optional<double> epsilon = std::nullopt;         // the epsilon of the batch norms
  std::optional<double> momentum = std::nullopt;        // the share of the new statistics, as in LibTorch
  bool synchronized = false;                            // statistics of the global batch, as cohort::BatchNormalization
  std::optional<Activation> activation = std::nullopt;  // the activation
};

struct ResNetOptions {
  int64_t num_classes = 1000;  // outputs
  int64_t in_channels = 3;     // channels of an image
  // With true, the last batch norm of each block starts at zero, so that the blocks start as identities (Goyal et al.,
  // "Accurate, Large Minibatch SGD", 2017).
  bool zero_init_residual = false;
  bool channels_last = false;  // compute with the channels last in memory (kernels, too, on GPUs); rounds otherwise
  bool remat = false;          // compute blocks again in backward instead of keeping their activations (cohort::remat)
  NormActivation norm_activation = {};  // changes to the batch norms and the activation
};
// Makes a ResNet of 18 layers: K. He et al., "Deep Residual Learning for Image Recognition" (2015).
std::shared_ptr<LayerModule> resnet18(const ResNetOptions& options = {});
// Makes a ResNet of 34 layers.
std::shared_ptr<LayerModule> resnet34(const ResNetOptions& options = {});
// Makes a ResNet of 50 layers, in bottlenecks, whose 3 x 3 convolution has the stride ("v1.5").
std::shared_ptr<LayerModule> resnet50(const ResNetOptions& options = {});
// Makes a ResNet of 101 layers, in bottlenecks.
std::shared_ptr<LayerModule> resnet101(const ResNetOptions& options = {});
// Makes a ResNet of 152 layers, in bottlenecks.
std::shared_ptr<LayerModule> resnet152(const ResNetOptions& options = {});

// Makes the same paper's network for images of 32 x 32, of 6 * blocks + 2 layers (3 blocks: ResNet-20), with shortcuts
// without parameters.
std::shared_ptr<LayerModule> resnet_cifar(int64_t blocks, const ResNetOptions& options = {.num_classes = 10});

struct EfficientNetOptions {
  int64_t num_classes = 1000;           // outputs
  int64_t in_channels = 3;              // channels of an image
  double dropout = -1.0;                // rate of dropout before the classifier; negative: the variant's
  double stochastic_depth_prob = 0.2;   // rate at which the last block is dropped; that of earlier ones in proportion
  bool channels_last = false;           // as ResNetOptions::channels_last
  bool remat = false;                   // as ResNetOptions::remat
  double se_ratio = 0.25;               // width of squeeze and excitation, as a part of a block's input; 0: none
  NormActivation norm_activation = {};  // changes to the batch norms and the activation
};
// Makes an EfficientNet of variant 0 to 7: M. Tan and Q. Le, "EfficientNet" (2019).
std::shared_ptr<LayerModule> efficientnet(int variant, const EfficientNetOptions& options = {});
// Returns the height and width of the images that the variant was made for.
int64_t efficientnet_image_size(int variant);

struct VisionTransformerOptions {
  int64_t image_size = 224;            // height and width of an image, a multiple of patch_size
  int64_t patch_size = 16;             // height and width of a patch
  int64_t num_layers = 12;             // blocks of attention and dense layers
  int64_t num_heads = 12;              // heads of attention, a divisor of hidden_dim
  int64_t hidden_dim = 768;            // size of a token
  int64_t mlp_dim = 3072;              // size of the hidden layer of a block
  double dropout = 0.0;                // part of the activations that is set to zero while training
  double attention_dropout = 0.0;      // part of the weights of attention that is set to zero while training
  double stochastic_depth_prob = 0.0;  // rate at which the last block is dropped; that of earlier ones in proportion
  int64_t representation_size = 0;     // units of a dense layer with tanh before the classifier; 0: there is none
  // With true, all weights but the classifier's start from a normal distribution of deviation 0.02, cut off at two of
  // them (H. Touvron et al., "Training data-efficient image transformers", 2021), instead of torchvision's.
  bool normal_init = false;
  int64_t num_classes = 1000;  // outputs
  int64_t in_channels = 3;     // channels of an image
  bool remat = false;          // as ResNetOptions::remat
};
// Makes a vision transformer: A. Dosovitskiy et al., "An Image is Worth 16x16 Words" (2020).
std::shared_ptr<LayerModule> vision_transformer(const VisionTransformerOptions& options = {});

struct UNetOptions {
  int64_t num_classes = 2;              // outputs for each pixel
  int64_t in_channels = 3;              // channels of an image
  int64_t filters = 64;                 // channels of the first level; each level below has twice as many
  int64_t levels = 4;                   // number of times that height and width are halved, 1 to 16
  double dropout = 0.0;                 // part of the lowest level's output that is set to zero while training
  bool channels_last = false;           // as ResNetOptions::channels_last
  NormActivation norm_activation = {};  // changes to the batch norms and the activation
};
// Makes a U-Net, which gives logits for each pixel: O. Ronneberger et al., "U-Net: Convolutional Networks for
// Biomedical Image Segmentation" (2015), with padded convolutions and batch norms, under the names of Pytorch-UNet,
// whose weights
// ("unet_carvana" of torch.hub) load into it. Height and width may be odd; both are at least two to the power of
// levels.
std::shared_ptr<LayerModule> unet(const UNetOptions& options = {});

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
  bool remat = false;               // as ResNetOptions::remat
  LoraOptions lora = {};            // adapters instead of learning everything
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

// A module that takes several inputs and returns several outputs, by name. Not thread-safe.
class NamedModule : public torch::nn::Module {
 public:
  // Returns the outputs for these inputs, of both of which dimension 0 is the batch.
  virtual NamedTensors forward(const NamedTensors& inputs) = 0;
};

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
  bool remat = false;         // as ResNetOptions::remat
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

struct DlrmOptions {
  int64_t num_dense_features = 13;             // numbers of an example
  std::vector<int64_t> vocab_sizes = {};       // values of each category
  int64_t embedding_dim = 16;                  // size of a category's vector
  std::vector<int64_t> bottom_mlp = {64, 16};  // units of the dense layers of the numbers; the last: embedding_dim
  std::vector<int64_t> top_mlp = {64, 32, 1};  // units of the dense layers of the products; the last: 1
};
// Makes a recommender: M. Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation
// Systems" (2019, arXiv:1906.00091), with the names (emb_l, bot_l, top_l) and the arithmetic of facebookresearch/dlrm.
// The inputs, by name: dense_features, of floating point [examples, num_dense_features], and sparse_features, of an
// integer dtype [examples, categories], each below its vocabulary's size. The output: logits [examples]. With parameter
// servers only the rows of the tables that a step looks up travel (docs/parameter-servers.md).
std::shared_ptr<NamedModule> dlrm(const DlrmOptions& options);

}  // namespace cohort::models
