#include <ATen/Functions.h>

#include "cohort/train/layers/basic.h"
#include "ops/dense_product.h"
#include "train/layers/dense_module.h"
#include "train/layers/support.h"

namespace cohort {

DenseModule::DenseModule(const DenseOptions& options, const BuildContext& context)
    : parts_{.name = context.name,
             .inputs = context.input.back(),
             .last_dim = static_cast<int64_t>(context.input.size()),
             .activation = options.activation,
             .kernel_regularizer = options.kernel_regularizer,
             .bias_regularizer = options.bias_regularizer,
             .weight = {},
             .bias = {}} {
  const auto inputs = static_cast<double>(parts_.inputs), units = static_cast<double>(options.units);
  parts_.weight = register_parameter("weight", torch::empty({options.units, parts_.inputs}, context.dtype));
  options.kernel_initializer.fill(parts_.weight, inputs, units);
  constrain_by(options.kernel_constraint, parts_.weight);
  if (!options.use_bias) return;
  parts_.bias = register_parameter("bias", torch::empty({options.units}, context.dtype));
  options.bias_initializer.fill(parts_.bias, units, units);
  constrain_by(options.bias_constraint, parts_.bias);
}

torch::Tensor DenseModule::forward(const torch::Tensor& x) {
  if (form() != nullptr) return form()->forward(x);
  const Activation& activation = parts_.activation;
  check_input(parts_.name, kType, x, 0, -1, parts_.inputs);
  const bool relu = activation.is_relu();
  const torch::Tensor product = dense_product(x, parts_.weight, parts_.bias, relu);
  if (!product.defined()) return activation.overwrite(at::linear(x, parts_.weight, parts_.bias));
  return relu || activation.is_linear() ? product : activation.overwrite(product);
}

torch::Tensor DenseModule::penalty() const {
  return penalty_of({{parts_.kernel_regularizer, parts_.weight}, {parts_.bias_regularizer, parts_.bias}});
}

namespace {

class DenseKind final : public LayerKind {
 public:
  explicit DenseKind(DenseOptions options) : options_(std::move(options)) {
    if (options_.units <= 0) fail_option(DenseModule::kType, "units must be positive, got ", options_.units);
  }
  std::string_view type() const override { return DenseModule::kType; }
  std::string_view base_name() const override { return "dense"; }

  Shape output_shape(const BuildContext& context) const override {
    if (context.input.empty() || context.input.back() < 0) {
      fail_input(
          context.name, DenseModule::kType, to_text(context.input) + " an example",
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
