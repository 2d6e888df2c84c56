#include <ATen/Functions.h>

#include "cohort/train/layers.h"
#include "train/layers/dense_product.h"
#include "train/layers/support.h"
#include "wings/mesh/train/parts_between.h"

namespace cohort {

namespace {

constexpr std::string_view kDense = "Dense";

class DenseModule final : public LayerModule, public DividedModule, public PartsBetween {
 public:
  DenseModule(const DenseOptions& options, const BuildContext& context)
      : name_(context.name),
        inputs_(context.input.back()),
        last_dim_(static_cast<int64_t>(context.input.size())),
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
    switch (form_) {
      case Form::kWhole:
        check_input(name_, kDense, x, 0, -1, inputs_);
        return forward_whole(x);
      case Form::kColumns:
        return forward_columns(x);
      case Form::kRows:
        return forward_rows(x);
    }
    return {};
  }

  void divide(const std::map<std::string, ParameterAxes>& axes, const Topology& /*topology*/) override {
    const auto weight = axes.find("weight");
    const auto bias = axes.find("bias");
    const bool columns = weight != axes.end() && !weight->second[0].empty();
    const bool fits = weight != axes.end() &&
                      (columns ? !bias_.defined() || (bias != axes.end() && bias->second[0] == weight->second[0])
                               : bias == axes.end());
    if (!fits)
      fail_layout(name_, kDense, axes,
                  R"(weight {"model", ""} and bias {"model"} (columns), or weight {"", "model"} alone (rows))");
    refuse_regularizer(name_, kDense, "weight", kernel_regularizer_);
    if (columns) refuse_regularizer(name_, kDense, "bias", bias_regularizer_);
    form_ = columns ? Form::kColumns : Form::kRows;
    axis_ = weight->second[columns ? 0 : 1];
  }

  Parts parts() const override {
    if (form_ == Form::kRows) return Parts::kTakes;
    return form_ == Form::kColumns && activation_.is_elementwise() ? Parts::kMakes : Parts::kNone;
  }
  const std::string& parts_axis() const override { return axis_; }
  int64_t parts_dim() const override { return last_dim_; }

  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }
  torch::Tensor penalty() const override {
    return penalty_of({{kernel_regularizer_, weight_}, {bias_regularizer_, bias_}});
  }

 private:
  // kColumns: the replicas along an axis compute some units each. kRows: each takes some inputs, and the products are
  // added up.
  enum class Form { kWhole, kColumns, kRows };

  torch::Tensor forward_whole(const torch::Tensor& x) const {
    const bool relu = activation_.is_relu();
    const torch::Tensor product = dense_product(x, weight_, bias_, relu);
    if (!product.defined()) return activation_.overwrite(at::linear(x, weight_, bias_));
    return relu ? product : activation_.overwrite(product);
  }

  // The units stay apart where the next layer takes them so.
  torch::Tensor forward_columns(const torch::Tensor& x) {
    check_input(name_, kDense, x, 0, -1, inputs_);
    const torch::Tensor units = given(at::linear(enter_axis(x, axis_), weight_, bias_));
    return gives_parts() ? activation_.overwrite(units) : activation_(units);
  }

  torch::Tensor forward_rows(const torch::Tensor& x) {
    const bool in_parts = gets_parts();
    check_input(name_, kDense, x, 0, -1, in_parts ? weight_.size(1) : inputs_);
    torch::Tensor sum = sum_along(at::linear(in_parts ? x : part_along(x, axis_, -1), weight_), axis_);
    if (bias_.defined()) sum = sum + bias_;
    return activation_(sum);
  }

  std::string name_;
  int64_t inputs_;
  int64_t last_dim_;  // of an activation
  Form form_ = Form::kWhole;
  std::string axis_;
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
