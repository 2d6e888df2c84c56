// LayerNormalization and RMSNormalization: both over the last dimensions of each example.
#include <ATen/Functions.h>

#include "cohort/train/layers.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

constexpr std::string_view kLayerNormalization = "LayerNormalization";

// Returns the input's shape. InvalidArgument: fewer dimensions, or one whose size is not known.
Shape checked_last(const BuildContext& context, std::string_view type, int64_t dimensions) {
  const auto rank = static_cast<int64_t>(context.input.size());
  bool known = rank >= dimensions;
  for (int64_t i = 0; known && i < dimensions; ++i) known = context.input[static_cast<std::size_t>(rank - 1 - i)] > 0;
  if (known) return context.input;
  fail_input(context.name, type, to_text(context.input) + " an example",
             c10::str("at least ", dimensions, " dimension(s) of known size"));
}

class LayerNormModule final : public LayerModule {
 public:
  LayerNormModule(const LayerNormalizationOptions& options, const BuildContext& context)
      : name_(context.name),
        shape_(context.input.end() - options.dimensions, context.input.end()),
        rank_(static_cast<int64_t>(context.input.size()) + 1),
        epsilon_(options.epsilon) {
    if (options.scale) weight_ = register_parameter("weight", torch::ones(shape_, context.dtype));
    if (options.center) bias_ = register_parameter("bias", torch::zeros(shape_, context.dtype));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, kLayerNormalization, x, rank_, -1, shape_.back());
    return at::layer_norm(x, shape_, weight_, bias_, epsilon_);
  }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 private:
  std::string name_;
  Shape shape_;
  int64_t rank_;
  double epsilon_;
  torch::Tensor weight_, bias_;
};

class LayerNormKind final : public LayerKind {
 public:
  explicit LayerNormKind(LayerNormalizationOptions options) : options_(std::move(options)) {
    if (options_.dimensions <= 0)
      fail_option(kLayerNormalization, "dimensions must be positive, got ", options_.dimensions);
    if (!(options_.epsilon > 0.0)) fail_option(kLayerNormalization, "epsilon must be positive, got ", options_.epsilon);
  }
  std::string_view type() const override { return kLayerNormalization; }
  std::string_view base_name() const override { return "layer_normalization"; }

  Shape output_shape(const BuildContext& context) const override {
    return checked_last(context, kLayerNormalization, options_.dimensions);
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<LayerNormModule>(options_, context);
  }

 private:
  LayerNormalizationOptions options_;
};

constexpr std::string_view kRmsNormalization = "RMSNormalization";

class RmsNormModule final : public LayerModule {
 public:
  RmsNormModule(const RMSNormalizationOptions& options, const BuildContext& context)
      : name_(context.name),
        shape_(context.input.end() - options.dimensions, context.input.end()),
        rank_(static_cast<int64_t>(context.input.size()) + 1),
        epsilon_(options.epsilon) {
    for (int64_t i = 1; i <= options.dimensions; ++i) dims_.push_back(-i);
    weight_ = register_parameter("weight", torch::ones(shape_, context.dtype));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, kRmsNormalization, x, rank_, -1, shape_.back());
    return x * (x.square().mean(dims_, /*keepdim=*/true) + epsilon_).rsqrt() * weight_;
  }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 private:
  std::string name_;
  Shape shape_;
  int64_t rank_;
  double epsilon_;
  std::vector<int64_t> dims_;
  torch::Tensor weight_;
};

class RmsNormKind final : public LayerKind {
 public:
  explicit RmsNormKind(RMSNormalizationOptions options) : options_(std::move(options)) {
    if (options_.dimensions <= 0)
      fail_option(kRmsNormalization, "dimensions must be positive, got ", options_.dimensions);
    if (!(options_.epsilon > 0.0)) fail_option(kRmsNormalization, "epsilon must be positive, got ", options_.epsilon);
  }
  std::string_view type() const override { return kRmsNormalization; }
  std::string_view base_name() const override { return "rms_normalization"; }
  Shape output_shape(const BuildContext& context) const override {
    return checked_last(context, kRmsNormalization, options_.dimensions);
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<RmsNormModule>(options_, context);
  }

 private:
  RMSNormalizationOptions options_;
};

}  // namespace

Layer LayerNormalization(const LayerNormalizationOptions& options) {
  return make_layer<LayerNormKind>(options, options.trainable);
}

Layer RMSNormalization(const RMSNormalizationOptions& options) {
  return make_layer<RmsNormKind>(options, options.trainable);
}

}  // namespace cohort
