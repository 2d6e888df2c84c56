// Flatten and Reshape.
#include <ATen/Functions.h>

#include <algorithm>

#include "cohort/train/layers/basic.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

int64_t product(const Shape& shape) {
  int64_t all = 1;
  for (const int64_t size : shape) {
    if (size < 0) return -1;
    all *= size;
  }
  return all;
}

// Returns x.reshape(sizes). Where x has its channels last, so has the gradient that comes back to it: LibTorch's
// kernels for what is before it take ten times as long for a gradient of another layout.
torch::Tensor reshaped(const torch::Tensor& x, torch::IntArrayRef sizes) {
  const at::MemoryFormat layout = x.suggest_memory_format();
  if (layout != at::MemoryFormat::Contiguous && x.requires_grad() && !x.is_leaf()) {
    x.register_hook([layout](const torch::Tensor& gradient) { return gradient.contiguous(layout); });
  }
  return x.reshape(sizes);
}

// The channels of images come first, so that flat parts of them are a part of all that is flat.
class FlattenModule final : public LayerModule {
 public:
  DependsOn depends_on() const override { return DependsOn::kChannel; }
  torch::Tensor forward(const torch::Tensor& x) override {
    return x.dim() < 2 ? x.unsqueeze(-1) : reshaped(x, {x.size(0), product(x.sizes().slice(1).vec())});
  }
};

class FlattenKind final : public LayerKind {
 public:
  std::string_view type() const override { return "Flatten"; }
  std::string_view base_name() const override { return "flatten"; }
  Shape output_shape(const BuildContext& context) const override { return {product(context.input)}; }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<FlattenModule>();
  }
};

class ReshapeModule final : public LayerModule {
 public:
  ReshapeModule(Shape target, const BuildContext& context) : target_(std::move(target)), name_(context.name) {
    target_.insert(target_.begin(), 0);
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    Shape target = target_;
    target[0] = x.size(0);
    int64_t inputs = 1, outputs = 1;
    for (int64_t i = 1; i < x.dim(); ++i) inputs *= x.size(i);
    for (const int64_t size : target_) outputs *= size > 0 ? size : 1;
    for (int64_t& size : target) {
      if (size < 0) size = inputs / outputs;  // LibTorch cannot infer it from a batch of no examples
    }
    if (product(Shape(target.begin() + 1, target.end())) != inputs) {
      fail_called(name_, "Reshape", x,
                  "as many elements an example as " + to_text(Shape(target_.begin() + 1, target_.end())));
    }
    return reshaped(x, target);
  }

 private:
  Shape target_;  // the batch's place first
  std::string name_;
};

class ReshapeKind final : public LayerKind {
 public:
  explicit ReshapeKind(Shape target) : target_(std::move(target)) {
    const auto unknown = std::count(target_.begin(), target_.end(), -1);
    const bool valid = std::all_of(target_.begin(), target_.end(), [](int64_t size) { return size > 0 || size == -1; });
    if (unknown > 1 || !valid) {
      fail_option("Reshape", "the target's sizes must be positive, one of them may be -1; got ", to_text(target_));
    }
  }
  std::string_view type() const override { return "Reshape"; }
  std::string_view base_name() const override { return "reshape"; }

  Shape output_shape(const BuildContext& context) const override {
    const int64_t inputs = product(context.input);
    if (inputs < 0) return target_;
    int64_t known = 1;
    for (const int64_t size : target_) known *= size > 0 ? size : 1;
    Shape output = target_;
    for (int64_t& size : output) {
      if (size < 0) size = inputs / known;
    }
    if (product(output) != inputs) {
      fail_input(context.name, type(), to_text(context.input) + " an example",
                 "as many elements as " + to_text(target_));
    }
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<ReshapeModule>(target_, context);
  }

 private:
  Shape target_;
};

}  // namespace

Layer Flatten() {
  return Layer(made_with<FlattenKind>(std::monostate()));
}

Layer Reshape(Shape target_shape) {
  return Layer(made_with<ReshapeKind>(target_shape, target_shape));
}

}  // namespace cohort
