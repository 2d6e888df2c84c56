#include <ATen/Functions.h>

#include "cohort/train/layers.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

constexpr std::string_view kDense = "Dense";

class DenseModule final : public LayerModule {
 public:
  DenseModule(const DenseOptions& options, const BuildContext& context)
      : name_(context.name),
        inputs_(context.input.back()),
        activation_(options.activation),
        kernel_regularizer_(options.kernel_regularizer),
        bias_regularizer_(options.bias_regularizer) {
    weight_ = register_parameter("weight", torch::empty({options.units, inputs_}, context.dtype));
    options.kernel_initializer.fill(weight_, static_cast<double>(inputs_), static_cast<double>(options.units));
    if (!options.use_bias) return;
    bias_ = register_parameter("bias", torch::empty({options.units}, context.dtype));
    options.bias_initializer.fill(bias_, static_cast<double>(options.units), static_cast<double>(options.units));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, kDense, x, 0, -1, inputs_);
    return activation_.overwrite(at::linear(x, weight_, bias_));
  }

  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }
  torch::Tensor penalty() const override {
    return penalty_of({{kernel_regularizer_, weight_}, {bias_regularizer_, bias_}});
  }

 private:
  std::string name_;
  int64_t inputs_;
  Activation activation_;
  Regularizer kernel_regularizer_, bias_regularizer_;
  torch::Tensor weight_, bias_;
};

class DenseKind final : public LayerKind {
 public:
  explicit DenseKind(DenseOptions options) : options_(std::move(options)) {
    if (options_.units <= 0) fail_option(kDense, "units must be positive, got ", options_.units);
  }
  std::string_view type() const override { return kDense; }
  std::string_view base_name() const override { return "dense"; }

  Shape output_shape(const BuildContext& context) const override {
    if (context.input.empty() || context.input.back() < 0) {
      fail_input(
          context.name, kDense, to_text(context.input) + " an example",
          context.input.empty() ? "[..., inputs]: put a Flatten layer before it" : "a last dimension that is known");
    }
    Shape output = context.input;
    output.back() = options_.units;
    return output;
  }

  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<DenseModule>(options_, context);
  }

 private:
  DenseOptions options_;
};

}  // namespace

Layer Dense(const DenseOptions& options) {
  return make_layer<DenseKind>(options, options.trainable);
}

Layer Dense(int64_t units, const Activation& activation) {
  return Dense(DenseOptions{.units = units, .activation = activation});
}

}  // namespace cohort
