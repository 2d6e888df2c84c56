// ReLU and LeakyReLU: rectifiers with numbers of their own.
#include "cohort/train/layers/relu.h"

#include <ATen/Functions.h>

#include "train/layers/support.h"

namespace cohort {

namespace {

class ReLUModule final : public LayerModule {
 public:
  explicit ReLUModule(ReLUOptions options) : options_(std::move(options)) {}

  DependsOn depends_on() const override { return DependsOn::kElement; }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }
  torch::Tensor forward(const torch::Tensor& x) override {
    const auto& [most, slope, threshold, name] = options_;
    torch::Tensor y = x;
    if (threshold == 0.0) {
      y = slope == 0.0 ? at::relu(x) : at::leaky_relu(x, slope);
    } else {
      y = at::where(x.ge(threshold), x, slope == 0.0 ? at::zeros_like(x) : (x - threshold) * slope);
    }
    return most.has_value() ? y.clamp_max(*most) : y;
  }

 private:
  ReLUOptions options_;
};

class ReLUKind : public LayerKind {
 public:
  explicit ReLUKind(ReLUOptions options) : options_(std::move(options)) {
    if (options_.negative_slope >= 0.0 && options_.threshold >= 0.0 && options_.max_value.value_or(0.0) >= 0.0) return;
    fail_option(type(), "max_value, negative_slope and threshold must be 0 or more");
  }
  std::string_view type() const override { return "ReLU"; }
  std::string_view base_name() const override { return "re_lu"; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<ReLUModule>(options_);
  }

 private:
  ReLUOptions options_;
};

class LeakyReLUKind : public LayerKind {
 public:
  explicit LeakyReLUKind(const LeakyReLUOptions& options) : slope_(options.negative_slope) {
    if (!(slope_ >= 0.0)) fail_option(type(), "negative_slope must be 0 or more, got ", slope_);
  }
  std::string_view type() const override { return "LeakyReLU"; }
  std::string_view base_name() const override { return "leaky_re_lu"; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<ReLUModule>(ReLUOptions{.negative_slope = slope_});
  }

 private:
  double slope_;
};

}  // namespace

Layer ReLU(const ReLUOptions& options) {
  return make_layer<ReLUKind>(options);
}

Layer LeakyReLU(const LeakyReLUOptions& options) {
  return make_layer<LeakyReLUKind>(options);
}

}  // namespace cohort
