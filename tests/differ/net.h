// Random modules: a list of parts over images, features or tokens, each of which fits whatever shape comes to it, so
// that a part can be taken out and the rest still is a module.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/differ/random.h"

namespace cohort::differ {

enum class PartKind {
  kLinear,
  kConv,
  kTransposed,
  kActivation,
  kPool,
  kLayerNorm,
  kGroupNorm,
  kResidual,
  kBranches,
  kTied,
  kTwice,
  kUnused,
  kUpsample,
  kLayout,
  kScale,
  kGru,
  kCount
};

// One part; a kind reads the numbers that mean something to it.
struct Part {
  PartKind kind = PartKind::kLinear;
  int64_t width = 1;           // outputs, in units of 2 channels
  int64_t kernel[2] = {1, 1};  // also of poolings and up-sampling
  int64_t stride = 1;          // also which activation or pooling
  int64_t dilation = 1;        // of convolutions
  bool grouped = false;        // convolutions: groups of two channels
  bool bias = true;            // it has one
  bool frozen = false;         // its parameters get no gradients
  bool in_place = false;       // activations
  bool channels_last = false;  // the weight, or what kLayout makes of its input

  std::string text() const {
    static const char* const names[] = {"linear",     "conv",     "transposed", "activation", "pool",  "layer_norm",
                                        "group_norm", "residual", "branches",   "tied",       "twice", "unused",
                                        "upsample",   "layout",   "scale",      "gru"};
    return c10::str(names[static_cast<int>(kind)], "(width ", 2 * width, ", kernel ", kernel[0], "x", kernel[1],
                    ", stride ", stride, ", dilation ", dilation, grouped ? ", grouped" : "", bias ? "" : ", no bias",
                    frozen ? ", frozen" : "", in_place ? ", in place" : "", channels_last ? ", channels last" : "",
                    ")");
  }
};

inline Part random_part(Random& random) {
  Part part;
  part.kind = static_cast<PartKind>(random.between(0, static_cast<int64_t>(PartKind::kCount) - 1));
  part.width = random.between(1, 4);
  for (int64_t& side : part.kernel) side = random.between(1, 3);
  part.stride = random.between(1, 12);
  part.dilation = random.between(1, 2);
  part.grouped = random.once_in(3);
  part.bias = !random.once_in(3);
  part.frozen = random.once_in(6);
  part.in_place = random.once_in(3);
  part.channels_last = random.once_in(2);
  return part;
}

// What goes in: images [n, 4, height, width], features [n, height * width], or tokens [n, height] of an embedding.
struct Input {
  enum Kind { kImages, kFeatures, kTokens } kind = kFeatures;
  int64_t height = 3, width = 3;
  bool channels_last = false;  // images
  bool sparse = false;         // the embedding's gradients

  std::string text() const {
    static const char* const names[] = {"images", "features", "tokens"};
    return c10::str(names[kind], " ", height, "x", width, channels_last ? ", channels last" : "",
                    sparse ? ", sparse gradients" : "");
  }
  torch::Tensor draw(int64_t size, torch::ScalarType dtype) const {
    if (kind == kTokens) return torch::randint(kWords, {size, height}, torch::kLong);
    if (kind == kFeatures) return torch::randn({size, height * width}, torch::kDouble).to(dtype);
    const torch::Tensor images = torch::randn({size, 4, height, width}, torch::kDouble).to(dtype);
    return channels_last ? images.contiguous(torch::MemoryFormat::ChannelsLast) : images;
  }

  static constexpr int64_t kWords = 11;
};

inline Input random_input(Random& random) {
  return {static_cast<Input::Kind>(random.between(0, 2)), random.between(1, 6), random.between(1, 6), random.once_in(2),
          random.once_in(3)};
}

struct NetSpec {
  Input input;
  std::vector<Part> parts;
};

constexpr int64_t kNetClasses = 3;

// The module of a specification. Its parameters are drawn from LibTorch's generator. `plain`: every tensor between two
// parts is contiguous, and nothing is done in place; the oracle's form.
class NetImpl : public torch::nn::Module {
 public:
  NetImpl(const NetSpec& spec, bool plain);
  torch::Tensor forward(torch::Tensor x);

 private:
  struct Made {
    Part part;
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    std::vector<torch::Tensor> parameters;
  };

  torch::Tensor apply(Made& made, const torch::Tensor& x);
  torch::Tensor convolve(Made& made, const torch::Tensor& x);
  void make(Made& made, const torch::Tensor& probe);
  void own(Made& made, std::shared_ptr<torch::nn::Module> module);
  torch::Tensor own(Made& made, at::IntArrayRef sizes);

  NetSpec spec_;
  bool plain_;
  torch::nn::Embedding embedding_{nullptr};
  std::vector<Made> made_;
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(Net);

}  // namespace cohort::differ
