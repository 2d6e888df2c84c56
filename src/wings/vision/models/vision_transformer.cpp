// Vision transformers with torchvision's names and arithmetic: an image is a sequence of patches.
#include <ATen/Functions.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>

#include "base/fail.h"
#include "cohort/models/image_models.h"
#include "cohort/parallel/stages.h"
#include "models/zoo/parts.h"
#include "ops/dense_product.h"
#include "strategy/divided.h"
#include "strategy/divides_positions.h"
#include "strategy/packed_parameters.h"
#include "train/layers/fused_attention.h"
#include "wings/vision/models/blocks.h"

namespace cohort::models {

namespace {

constexpr double kNormEpsilon = 1e-6;

torch::nn::LayerNorm layer_norm(int64_t size) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({size}).eps(kNormEpsilon));
}

// Attention among the tokens of an image, with PyTorch's names: A. Vaswani et al., "Attention Is All You Need" (2017).
constexpr const char* kModel = "vision_transformer";

class SelfAttention final : public LayerModule, public DividedModule, public PackedParameters {
 public:
  // Those of queries, keys and values are packed.
  SelfAttention(const VisionTransformerOptions& options)
      : PackedParameters{.runs = {{"in_proj_weight", 3}, {"in_proj_bias", 3}}},
        heads_(options.num_heads),
        dropout_(options.attention_dropout) {
    const int64_t size = options.hidden_dim;
    in_weight_ = register_parameter("in_proj_weight", torch::empty({3 * size, size}));
    in_bias_ = register_parameter("in_proj_bias", torch::zeros({3 * size}));
    torch::nn::init::xavier_uniform_(in_weight_);
    out_ = register_module("out_proj", torch::nn::Linear(size, size));
    torch::nn::init::zeros_(out_->bias);
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    const int64_t n = x.size(0);
    const int64_t length = x.size(1);
    const int64_t each = in_weight_.size(0) / 3 / heads_;
    const torch::Tensor entered = axis_.empty() ? x : enter_axis(x, axis_);
    // The shape is [3, examples, heads, length, each].
    const torch::Tensor qkv =
        affine(entered, in_weight_, in_bias_).view({n, length, 3, heads_, each}).permute({2, 0, 3, 1, 4});
    const torch::Tensor mixed = attend(qkv).transpose(1, 2).reshape({n, length, heads_ * each});
    return axis_.empty() ? affine(out_, mixed) : sum_like(x, at::linear(mixed, out_->weight), axis_) + out_->bias;
  }

  torch::Tensor attend(const torch::Tensor& qkv) const {
    const bool drops = is_training() && dropout_ > 0.0;
    const bool fuses = !drops && fuses_attention(qkv);
    // The products want every head's rows one after the other, and would copy each of the three by itself.
    const std::vector<torch::Tensor> each = (fuses ? qkv : qkv.contiguous()).unbind(0);
    const torch::Tensor &query = each[0], &key = each[1], &value = each[2];
    if (fuses) return fused_attention(query, key, value);
    const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
    const torch::Tensor weights = at::softmax(at::matmul(query * scale, key.transpose(-2, -1)), -1);
    return at::matmul(drops ? drop_part(weights, dropout_, axis_, 1) : weights, value);
  }

  // The replicas along the axis have some heads each.
  void divide(const ParameterCuts& cuts, const Topology& topology) override {
    axis_ = require_cuts(kModel, cuts,
                         {{"in_proj_weight", {"*", ""}}, {"in_proj_bias", {"*"}}, {"out_proj.weight", {"", "*"}}});
    require_heads(kModel, "num_heads", heads_, axis_, topology);
    heads_ /= topology.axis(axis_).size;
  }

 private:
  int64_t heads_;     // of this replica
  std::string axis_;  // along which the heads are divided; empty: it has all of them
  double dropout_;
  torch::Tensor in_weight_, in_bias_;
  torch::nn::Linear out_{nullptr};
};

torch::nn::Linear mlp_linear(int64_t in, int64_t out) {
  torch::nn::Linear made(in, out);
  torch::nn::init::xavier_uniform_(made->weight);
  torch::nn::init::normal_(made->bias, 0.0, 1e-6);
  return made;
}

class EncoderBlock final : public LayerModule, public DividedModule {
 public:
  EncoderBlock(const VisionTransformerOptions& options, double left_out)
      : dropout_(options.dropout), left_out_(left_out) {
    ln_1_ = register_module("ln_1", layer_norm(options.hidden_dim));
    attention_ = register_module("self_attention", std::make_shared<SelfAttention>(options));
    ln_2_ = register_module("ln_2", layer_norm(options.hidden_dim));
    const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>());
    mlp_in_ = mlp->register_module("0", mlp_linear(options.hidden_dim, options.mlp_dim));
    mlp_out_ = mlp->register_module("3", mlp_linear(options.mlp_dim, options.hidden_dim));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor y = x + branch(dropped(attention_->forward(ln_1_->forward(x))));
    return y + branch(dropped(dense(ln_2_->forward(y))));
  }

  // The replicas along the axis have some units of the hidden layer each.
  void divide(const ParameterCuts& cuts, const Topology& /*topology*/) override {
    axis_ =
        require_cuts(kModel, cuts, {{"mlp.0.weight", {"*", ""}}, {"mlp.0.bias", {"*"}}, {"mlp.3.weight", {"", "*"}}});
  }

 private:
  torch::Tensor dense(const torch::Tensor& x) {
    torch::Tensor inner = Activation(Activation::kGelu)(affine(mlp_in_, axis_.empty() ? x : enter_axis(x, axis_)));
    if (is_training() && dropout_ > 0.0) inner = drop_part(inner, dropout_, axis_, 2);
    return axis_.empty() ? affine(mlp_out_, inner)
                         : sum_like(x, at::linear(inner, mlp_out_->weight), axis_) + mlp_out_->bias;
  }
  // Leaves the block out for some examples (stochastic depth).
  torch::Tensor branch(const torch::Tensor& y) const {
    return is_training() && left_out_ > 0.0 ? drop(y, left_out_, {y.size(0), 1, 1}) : y;
  }
  torch::Tensor dropped(const torch::Tensor& x) const {
    return is_training() && dropout_ > 0.0 ? drop(x, dropout_, x.sizes()) : x;
  }

  double dropout_;
  double left_out_;
  std::string axis_;  // along which the hidden layer is divided; empty: it is whole
  torch::nn::LayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  std::shared_ptr<SelfAttention> attention_;
  torch::nn::Linear mlp_in_{nullptr}, mlp_out_{nullptr};
};

class Encoder final : public LayerModule, public DividesPositions {
 public:
  Encoder(const VisionTransformerOptions& options, int64_t length) : dropout_(options.dropout), remat_(options.remat) {
    position_ = register_parameter("pos_embedding", torch::empty({1, length, options.hidden_dim}).normal_(0.0, 0.02));
    const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < options.num_layers; ++i) {
      const double depth = static_cast<double>(i + 1) / static_cast<double>(options.num_layers);
      blocks_.push_back(
          layers->register_module("encoder_layer_" + std::to_string(i),
                                  std::make_shared<EncoderBlock>(options, options.stochastic_depth_prob * depth)));
    }
    ln_ = register_module("ln", layer_norm(options.hidden_dim));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    torch::Tensor y = x + position_;
    if (is_training() && dropout_ > 0.0) y = drop(y, dropout_, y.sizes());
    y = in_positions(y, positions_axis_);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (i > 0) y = stage_place(y, "encoder_layer_" + std::to_string(i));
      y = through(blocks_[i], y, remat_);
    }
    return whole_of(ln_->forward(y));
  }
  void divide_positions(const std::string& axis) override { positions_axis_ = axis; }

 private:
  std::string positions_axis_;  // along which the positions are; empty: they are whole
  double dropout_;
  bool remat_;
  torch::Tensor position_;
  std::vector<std::shared_ptr<EncoderBlock>> blocks_;
  torch::nn::LayerNorm ln_{nullptr};
};

class VisionTransformer final : public LayerModule {
 public:
  explicit VisionTransformer(const VisionTransformerOptions& options) : options_(options) {
    const int64_t size = options.hidden_dim;
    const int64_t patches = options.image_size / options.patch_size;
    class_token_ = register_parameter("class_token", torch::zeros({1, 1, size}));
    patches_ = register_module(
        "conv_proj",
        torch::nn::Conv2d(
            torch::nn::Conv2dOptions(options.in_channels, size, options.patch_size).stride(options.patch_size)));
    const auto fan_in = static_cast<double>(options.in_channels * options.patch_size * options.patch_size);
    // torchvision cuts it off at 2, which is dozens of deviations away.
    torch::nn::init::normal_(patches_->weight, 0.0, std::sqrt(1.0 / fan_in));
    torch::nn::init::zeros_(patches_->bias);
    encoder_ = register_module("encoder", std::make_shared<Encoder>(options, patches * patches + 1));
    const auto heads = register_module("heads", std::make_shared<torch::nn::Module>());
    if (options.representation_size > 0) {
      pre_logits_ = heads->register_module("pre_logits", torch::nn::Linear(size, options.representation_size));
      torch::nn::init::normal_(pre_logits_->weight, 0.0, std::sqrt(1.0 / static_cast<double>(size)));
      torch::nn::init::zeros_(pre_logits_->bias);
    }
    const int64_t last = options.representation_size > 0 ? options.representation_size : size;
    head_ = heads->register_module("head", torch::nn::Linear(last, options.num_classes));
    if (options.normal_init) draw_normal();
    torch::nn::init::zeros_(head_->weight);
    torch::nn::init::zeros_(head_->bias);
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_images("vision_transformer", x, options_.in_channels);
    if (x.size(2) != options_.image_size || x.size(3) != options_.image_size) {
      fail<InvalidArgument>("[models] vision_transformer: the images have ", x.size(2), " x ", x.size(3),
                            " pixels, wanted ", options_.image_size, " x ", options_.image_size);
    }
    const torch::Tensor input = x.to(class_token_.scalar_type());
    const torch::Tensor tokens = tokens_of(input);
    const torch::Tensor first = class_token_.expand({x.size(0), -1, -1});
    torch::Tensor y = encoder_->forward(at::cat({first, tokens}, 1)).select(1, 0);
    if (pre_logits_) y = at::tanh(affine(pre_logits_, y));
    return affine(head_, y);
  }

 private:
  // Returns [examples, patches, hidden_dim]. The patches do not overlap, so that a CPU computes them as one product, in
  // two thirds of the convolution's time.
  torch::Tensor tokens_of(const torch::Tensor& x) {
    if (!x.is_cpu() || is_divided(x)) return patches_->forward(x).flatten(2).transpose(1, 2);
    const int64_t edge = options_.patch_size;
    const int64_t patches = options_.image_size / edge;
    const torch::Tensor rows = x.reshape({x.size(0), x.size(1), patches, edge, patches, edge})
                                   .permute({0, 2, 4, 1, 3, 5})
                                   .reshape({x.size(0), patches * patches, x.size(1) * edge * edge});
    return affine(rows, patches_->weight.flatten(1), patches_->bias);
  }

  void draw_normal() {
    constexpr double kDeviation = 0.02;
    for (const auto& item : named_parameters()) {
      const bool kernel = item.value().dim() > 1 && item.key() != "class_token";
      if (kernel) draw_truncated_normal(item.value(), kDeviation);
      if (item.key().ends_with("bias")) torch::nn::init::zeros_(item.value());
    }
  }

  VisionTransformerOptions options_;
  torch::Tensor class_token_;
  torch::nn::Conv2d patches_{nullptr};
  std::shared_ptr<Encoder> encoder_;
  torch::nn::Linear pre_logits_{nullptr};
  torch::nn::Linear head_{nullptr};
};

void check(const VisionTransformerOptions& options) {
  const auto positive = [](const char* name, int64_t value) {
    if (value < 1) fail<InvalidArgument>("[models] vision_transformer: ", name, " is ", value, ", wanted 1 or more");
  };
  positive("image_size", options.image_size);
  positive("patch_size", options.patch_size);
  positive("num_layers", options.num_layers);
  positive("num_heads", options.num_heads);
  positive("hidden_dim", options.hidden_dim);
  positive("mlp_dim", options.mlp_dim);
  positive("num_classes", options.num_classes);
  positive("in_channels", options.in_channels);
  if (options.representation_size < 0) {
    fail<InvalidArgument>("[models] vision_transformer: representation_size is ", options.representation_size,
                          ", wanted 0 or more");
  }
  const auto multiple = [](const char* name, int64_t value, const char* of, int64_t divisor) {
    if (value % divisor == 0) return;
    fail<InvalidArgument>("[models] vision_transformer: ", name, " is ", value, ", wanted a multiple of ", of, ", ",
                          divisor);
  };
  multiple("image_size", options.image_size, "patch_size", options.patch_size);
  multiple("hidden_dim", options.hidden_dim, "num_heads", options.num_heads);
  for (const double rate : {options.dropout, options.attention_dropout, options.stochastic_depth_prob}) {
    if (!(rate >= 0.0 && rate < 1.0)) {
      fail<InvalidArgument>("[models] vision_transformer: a dropout or the stochastic depth is ", rate,
                            ", wanted 0 to less than 1");
    }
  }
}

}  // namespace

std::shared_ptr<LayerModule> vision_transformer(const VisionTransformerOptions& options) {
  check(options);
  return std::make_shared<VisionTransformer>(options);
}

}  // namespace cohort::models
