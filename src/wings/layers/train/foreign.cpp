// Layers around what is not ours: functions and modules of the user's.
#include "cohort/train/layers/foreign.h"

#include <ATen/Functions.h>

#include "train/layers/frozen.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

class ForeignLayerModule final : public LayerModule {
 public:
  explicit ForeignLayerModule(detail::ForeignModule foreign) : forward_(std::move(foreign.forward)) {
    // Its own parameters and children become this module's, so that names have no further level.
    if (!foreign.module) return;
    for (const auto& item : foreign.module->named_parameters(/*recurse=*/false)) {
      register_parameter(item.key(), item.value(), item.value().requires_grad());
    }
    for (const auto& item : foreign.module->named_buffers(/*recurse=*/false)) register_buffer(item.key(), item.value());
    for (const auto& item : foreign.module->named_children()) register_module(item.key(), item.value());
    module_ = std::move(foreign.module);
  }

  void train(bool on) override {
    LayerModule::train(on);
    if (!module_) return;
    module_->train(on);
    if (on && frozen_) hold_statistics(*module_);
  }

  void set_frozen(bool frozen) override {
    frozen_ = frozen;
    train(is_training());
  }

  torch::Tensor forward(const torch::Tensor& x) override { return forward_(x); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  bool frozen_ = false;
  std::function<torch::Tensor(const torch::Tensor&)> forward_;
};

class ForeignKind final : public LayerKind {
 public:
  ForeignKind(std::string type, std::string base_name, std::function<detail::ForeignModule(const Shape&)> build)
      : type_(std::move(type)), base_name_(std::move(base_name)), build_(std::move(build)) {}

  std::string_view type() const override { return type_; }
  std::string_view base_name() const override { return base_name_; }

  Shape output_shape(const BuildContext& context) const override {
    std::vector<int64_t> probe = {2};
    for (const int64_t size : context.input) {
      if (size < 0) {
        fail_input(context.name, type_, to_text(context.input) + " an example", "a shape that is known");
      }
      probe.push_back(size);
    }
    const torch::NoGradGuard no_grad;
    const detail::ForeignModule foreign = build_(context.input);
    if (foreign.module) {
      foreign.module->to(context.dtype);
      foreign.module->eval();
    }
    const torch::Tensor output = foreign.forward(torch::zeros(probe, context.input_dtype));
    if (!output.defined() || output.dim() == 0 || output.size(0) != 2) {
      fail<InvalidArgument>("[layers] ", context.name, " (", type_, "): forward of 2 examples gave ",
                            output.defined() ? c10::str("shape ", output.sizes()) : std::string("an undefined tensor"),
                            ", wanted [2, ...]");
    }
    return output.sizes().slice(1).vec();
  }

  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    detail::ForeignModule foreign = build_(context.input);
    if (foreign.module) foreign.module->to(context.dtype);
    return std::make_shared<ForeignLayerModule>(std::move(foreign));
  }

 private:
  std::string type_;
  std::string base_name_;
  std::function<detail::ForeignModule(const Shape&)> build_;
};

}  // namespace

namespace detail {

Layer foreign_layer(std::function<ForeignModule(const Shape&)> build, std::string name) {
  return Layer(std::make_shared<ForeignKind>("Module", "module", std::move(build)), std::move(name));
}

}  // namespace detail

Layer Lambda(std::function<torch::Tensor(const torch::Tensor&)> function, std::string name) {
  if (!function) fail_option("Lambda", "the function is empty");
  return Layer(std::make_shared<ForeignKind>("Lambda", "lambda",
                                             [function = std::move(function)](const Shape& /*input*/) {
                                               return detail::ForeignModule{nullptr, function};
                                             }),
               std::move(name));
}

}  // namespace cohort
