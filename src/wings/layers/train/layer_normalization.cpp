// LayerNormalization and RMSNormalization: both over the last dimensions of each example.
#include <ATen/Functions.h>

#include "cohort/train/layers/layer_normalization.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

// The part that both modules have in common: the shape of the last dimensions, and the rank of a batch.
class LastDimensions : public LayerModule {
 public:
  LastDimensions(std::string_view type, int64_t dimensions, const BuildContext& context)
      : shape_(context.input.end() - dimensions, context.input.end()),
        type_(type),
        name_(context.name),
        rank_(static_cast<int64_t>(context.input.size()) + 1) {}

  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }

 protected:
  void check(const torch::Tensor& x) const { check_input(name_, type_, x, rank_, -1, shape_.back()); }

  Shape shape_;

 private:
  std::string_view type_;
  std::string name_;
  int64_t rank_;
};

class LayerNormModule final : public LastDimensions {
 public:
  static constexpr std::string_view kType = "LayerNormalization";
  static constexpr std::string_view kBaseName = "layer_normalization";

  LayerNormModule(const LayerNormalizationOptions& options, const BuildContext& context)
      : LastDimensions(kType, options.dimensions, context), epsilon_(options.epsilon) {
    if (options.scale) weight_ = register_parameter("weight", torch::ones(shape_, context.dtype));
    if (options.center) bias_ = register_parameter("bias", torch::zeros(shape_, context.dtype));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check(x);
    return at::layer_norm(x, shape_, weight_, bias_, epsilon_);
  }

 private:
  double epsilon_;
  torch::Tensor weight_, bias_;
};

class RmsNormModule final : public LastDimensions {
 public:
  static constexpr std::string_view kType = "RMSNormalization";
  static constexpr std::string_view kBaseName = "rms_normalization";

  RmsNormModule(const RMSNormalizationOptions& options, const BuildContext& context)
      : LastDimensions(kType, options.dimensions, context), epsilon_(options.epsilon) {
    for (int64_t i = 1; i <= options.dimensions; ++i) dims_.push_back(-i);
    weight_ = register_parameter("weight", torch::ones(shape_, context.dtype));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check(x);
    return x * (x.square().mean(dims_, /*keepdim=*/true) + epsilon_).rsqrt() * weight_;
  }

 private:
  double epsilon_;
  std::vector<int64_t> dims_;
  torch::Tensor weight_;
};

template <typename Module, typename Options>
class LastDimensionsKind final : public LayerKind {
 public:
  explicit LastDimensionsKind(Options options) : options_(std::move(options)) {
    if (options_.dimensions <= 0) fail_option(type(), "dimensions must be positive, got ", options_.dimensions);
    if (!(options_.epsilon > 0.0)) fail_option(type(), "epsilon must be positive, got ", options_.epsilon);
  }
  std::string_view type() const override { return Module::kType; }
  std::string_view base_name() const override { return Module::kBaseName; }

  Shape output_shape(const BuildContext& context) const override {
    const auto rank = static_cast<int64_t>(context.input.size());
    bool known = rank >= options_.dimensions;
    for (int64_t i = 0; known && i < options_.dimensions; ++i) {
      known = context.input[static_cast<std::size_t>(rank - 1 - i)] > 0;
    }
    if (known) return context.input;
    fail_input(context.name, type(), to_text(context.input) + " an example",
               c10::str("at least ", options_.dimensions, " dimension(s) of known size"));
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<Module>(options_, context);
  }

 private:
  Options options_;
};

}  // namespace

Layer LayerNormalization(const LayerNormalizationOptions& options) {
  return make_layer<LastDimensionsKind<LayerNormModule, LayerNormalizationOptions>>(options, options.trainable);
}

Layer RMSNormalization(const RMSNormalizationOptions& options) {
  return make_layer<LastDimensionsKind<RmsNormModule, RMSNormalizationOptions>>(options, options.trainable);
}

}  // namespace cohort
