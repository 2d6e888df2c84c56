#include "wings/functional/train/applications/picture_layers.h"

#include <ATen/Functions.h>

#include <memory>

#include "base/extension.h"
#include "train/layers/support.h"

namespace cohort::applications {

namespace {

class ExampleDropoutModule final : public LayerModule {
 public:
  explicit ExampleDropoutModule(double rate) : rate_(rate) {}
  DependsOn depends_on() const override { return DependsOn::kElement; }
  torch::Tensor forward(const torch::Tensor& x) override {
    if (!is_training()) return x;
    return x * drop_out(at::ones({x.size(0), 1, 1, 1}, x.options().requires_grad(false)), rate_);
  }

 private:
  double rate_;
};

class ExampleDropoutKind final : public LayerKind {
 public:
  explicit ExampleDropoutKind(double rate) : rate_(rate) {}
  std::string_view type() const override { return "Dropout"; }
  std::string_view base_name() const override { return "dropout"; }
  Shape output_shape(const BuildContext& context) const override { return context.input; }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<ExampleDropoutModule>(rate_);
  }

 private:
  double rate_;
};

class PlacesFirstModule final : public LayerModule {
 public:
  torch::Tensor forward(const torch::Tensor& x) override {
    return x.permute({0, 2, 3, 1}).reshape({x.size(0), x.size(1) * x.size(2) * x.size(3)});
  }
};

class PlacesFirstKind final : public LayerKind {
 public:
  std::string_view type() const override { return "Flatten"; }
  std::string_view base_name() const override { return "flatten"; }
  Shape output_shape(const BuildContext& context) const override {
    const Shape image = known_image(context, type());
    return {image[0] * image[1] * image[2]};
  }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<PlacesFirstModule>();
  }
};

class AdaptivePoolModule final : public LayerModule {
 public:
  explicit AdaptivePoolModule(int64_t size) : size_(size) {}
  torch::Tensor forward(const torch::Tensor& x) override { return at::adaptive_avg_pool2d(x, {size_, size_}); }

 private:
  int64_t size_;
};

class AdaptivePoolKind final : public LayerKind {
 public:
  explicit AdaptivePoolKind(int64_t size) : size_(size) {}
  std::string_view type() const override { return "AdaptiveAveragePooling2D"; }
  std::string_view base_name() const override { return "adaptive_average_pooling2d"; }
  Shape output_shape(const BuildContext& context) const override {
    return {known_image(context, type())[0], size_, size_};
  }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<AdaptivePoolModule>(size_);
  }

 private:
  int64_t size_;
};

}  // namespace

Layer places_first_layer(const std::string& name) {
  return Layer(std::make_shared<PlacesFirstKind>(), name);
}

Layer adaptive_pool_layer(int64_t size, const std::string& name) {
  return Layer(std::make_shared<AdaptivePoolKind>(size), name);
}

Layer layer_of(std::string_view type, const LayerConfig& options, const std::string& name, std::string_view wing) {
  for (const LayerRow& row : extensions<LayerRow>()) {
    if (row.type == type) return row.make(options).named(name);
  }
  fail_without(wing, "[applications] the layer \"", name, "\" is a ", type);
}

Layer example_dropout_layer(double rate, const std::string& name) {
  return Layer(std::make_shared<ExampleDropoutKind>(rate), name);
}

}  // namespace cohort::applications
