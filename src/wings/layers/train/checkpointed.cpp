// Checkpointed: layers around other layers, which are computed again in backward (remat.cpp).
#include <algorithm>

#include "cohort/train/layers/checkpointed.h"
#include "train/layers/sequential_module.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

constexpr std::string_view kType = "Checkpointed";

class CheckpointedModule final : public LayerModule, public LayerChains {
 public:
  // With `alone` the one layer's own parameters and children become this module's, so that names have no further level.
  CheckpointedModule(std::shared_ptr<SequentialModule> layers, bool alone, bool offload)
      : layers_(std::move(layers)), options_{.offload = offload} {
    const torch::nn::Module& inner =
        alone ? static_cast<const torch::nn::Module&>(*layers_->layers().front()) : *layers_;
    for (const auto& item : inner.named_parameters(/*recurse=*/false)) {
      register_parameter(item.key(), item.value(), item.value().requires_grad());
    }
    for (const auto& item : inner.named_buffers(/*recurse=*/false)) register_buffer(item.key(), item.value());
    for (const auto& item : inner.named_children()) register_module(item.key(), item.value());
  }

  std::vector<std::vector<std::shared_ptr<LayerModule>>> chains() const override { return layers_->chains(); }
  void train(bool on) override {
    LayerModule::train(on);
    layers_->train(on);
  }
  torch::Tensor forward(const torch::Tensor& x) override { return forward_masked(x, {}); }
  torch::Tensor forward_masked(const torch::Tensor& x, const torch::Tensor& mask) override {
    const auto forward = [layers = layers_, mask](const torch::Tensor& input) { return layers->forward(input, mask); };
    return remat(layers_, forward, x, options_);
  }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& /*mask*/) override {
    return layers_->take_output_mask();
  }
  bool makes_mask() const override { return layers_->makes_masks(); }
  torch::Tensor penalty() const override {
    torch::Tensor sum;
    for (const torch::Tensor& each : layers_->penalties()) sum = sum.defined() ? sum + each : each;
    return sum;
  }
  void set_frozen(bool frozen) override {
    for (const auto& layer : layers_->layers()) layer->set_frozen(frozen);
  }

 private:
  std::shared_ptr<SequentialModule> layers_;
  CheckpointedOptions options_;
};

class CheckpointedKind final : public LayerKind {
 public:
  CheckpointedKind(std::vector<Layer> layers, bool alone, bool offload)
      : layers_(std::move(layers)), alone_(alone), offload_(offload) {}

  std::string_view type() const override { return kType; }
  std::string_view base_name() const override { return alone_ ? layers_.front().kind().base_name() : "checkpointed"; }
  Shape output_shape(const BuildContext& context) const override {
    return output_shapes(named(context), context).back();
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<CheckpointedModule>(std::make_shared<SequentialModule>(named(context), context), alone_,
                                                offload_);
  }

 private:
  // One layer has the name of the whole, which may have been given by the model.
  std::vector<Layer> named(const BuildContext& context) const {
    return alone_ ? std::vector<Layer>{layers_.front().named(context.name)} : layers_;
  }

  std::vector<Layer> layers_;
  bool alone_;
  bool offload_;
};

}  // namespace

Layer Checkpointed(const Layer& layer, const CheckpointedOptions& options) {
  return Layer(std::make_shared<CheckpointedKind>(std::vector<Layer>{layer}, /*alone=*/true, options.offload),
               options.name.empty() ? layer.name() : options.name, layer.trainable());
}

Layer Checkpointed(std::vector<Layer> layers, const CheckpointedOptions& options) {
  if (layers.empty()) fail_option(kType, "wants layers, got none");
  const auto other = std::find_if(layers.begin(), layers.end(),
                                  [&](const Layer& layer) { return layer.trainable() != layers.front().trainable(); });
  name_layers(layers);
  if (other != layers.end()) {
    fail_option(kType, "the layers of a block learn all or none; \"", layers.front().name(), "\" and \"", other->name(),
                "\" differ in trainable");
  }
  const bool trainable = layers.front().trainable();
  return Layer(std::make_shared<CheckpointedKind>(std::move(layers), /*alone=*/false, options.offload), options.name,
               trainable);
}

}  // namespace cohort
