#include "wings/functional/train/applications/token_layers.h"

#include <ATen/Functions.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <memory>

#include "train/layers/fused_attention.h"
#include "train/layers/support.h"
#include "wings/functional/train/applications/picture_layers.h"

namespace cohort::applications {

namespace {

class PatchTokensModule final : public LayerModule {
 public:
  explicit PatchTokensModule(const BuildContext& context) {
    const int64_t size = context.input[0];
    const int64_t tokens = 1 + context.input[1] * context.input[2];
    class_token_ = register_parameter("class_token", torch::zeros({1, 1, size}, context.dtype));
    positions_ = register_parameter("pos_embedding", torch::empty({1, tokens, size}, context.dtype).normal_(0.0, 0.02));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor patches = x.flatten(2).transpose(1, 2);
    const torch::Tensor first = class_token_.expand({x.size(0), 1, class_token_.size(2)}).to(x.scalar_type());
    return at::cat({first, patches}, 1) + positions_;
  }

 private:
  torch::Tensor class_token_;
  torch::Tensor positions_;
};

class PatchTokensKind final : public LayerKind {
 public:
  std::string_view type() const override { return "PatchTokens"; }
  std::string_view base_name() const override { return "patch_tokens"; }
  Shape output_shape(const BuildContext& context) const override {
    const Shape image = known_image(context, type());
    if (image[1] > 0 && image[2] > 0) return {1 + image[1] * image[2], image[0]};
    fail_input(context.name, type(), to_text(context.input) + " an example", "a known height and width");
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<PatchTokensModule>(context);
  }
};

class TokenAttentionModule final : public LayerModule {
 public:
  TokenAttentionModule(int64_t heads, const BuildContext& context) : heads_(heads) {
    const int64_t size = context.input.back();
    in_weight_ = register_parameter("in_proj_weight", torch::empty({3 * size, size}, context.dtype));
    Initializer(Initializer::kGlorotUniform)
        .fill(in_weight_, static_cast<double>(size), 3.0 * static_cast<double>(size));
    in_bias_ = register_parameter("in_proj_bias", torch::zeros({3 * size}, context.dtype));
    out_ = register_module("out_proj", torch::nn::Linear(size, size));
    out_->to(context.dtype);
    const torch::NoGradGuard no_grad;
    out_->bias.zero_();
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    const int64_t examples = x.size(0), tokens = x.size(1), size = x.size(2);
    const torch::Tensor parts =
        at::linear(x, in_weight_, in_bias_).view({examples, tokens, 3, heads_, size / heads_}).permute({2, 0, 3, 1, 4});
    const torch::Tensor seen = attend(parts[0], parts[1], parts[2]);
    return at::linear(seen.transpose(1, 2).reshape({examples, tokens, size}), out_->weight, out_->bias);
  }

 private:
  static torch::Tensor attend(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value) {
    if (fuses_attention(query)) return fused_attention(query, key, value);
    const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
    return at::matmul(at::softmax(at::matmul(query * scale, key.transpose(-2, -1)), -1), value);
  }

  int64_t heads_;
  torch::Tensor in_weight_;
  torch::Tensor in_bias_;
  torch::nn::Linear out_{nullptr};
};

class TokenAttentionKind final : public LayerKind {
 public:
  explicit TokenAttentionKind(int64_t heads) : heads_(heads) {}
  std::string_view type() const override { return "SelfAttention"; }
  std::string_view base_name() const override { return "self_attention"; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<TokenAttentionModule>(heads_, context);
  }

 private:
  int64_t heads_;
};

}  // namespace

Layer patch_tokens_layer(const std::string& name) {
  return Layer(std::make_shared<PatchTokensKind>(), name);
}

Layer token_norm_layer(const std::string& name) {
  constexpr double kEpsilon = 1e-6;
  return layer_of("LayerNormalization", {{"epsilon", kEpsilon}}, name);
}

Layer token_attention_layer(int64_t heads, const std::string& name) {
  return Layer(std::make_shared<TokenAttentionKind>(heads), name);
}

}  // namespace cohort::applications
