// Layers whose channels come last: views in another order around the layer. LibTorch's kernels keep that layout in
// memory, so that nothing is copied.
#include "wings/layers/train/channels_last.h"

#include <algorithm>

#include "step/constrained.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

class ChannelsLastModule final : public LayerModule, public Constrained {
 public:
  // The layer's parameters become this module's, so that names have no further level.
  ChannelsLastModule(std::shared_ptr<LayerModule> layer, Activation activation, std::string_view type,
                     const BuildContext& context)
      : layer_(std::move(layer)),
        activation_(std::move(activation)),
        type_(type),
        name_(context.name),
        input_(context.input) {
    for (const auto& item : layer_->named_parameters(/*recurse=*/false)) {
      register_parameter(item.key(), item.value(), item.value().requires_grad());
    }
    if (!layer_->buffers().empty() || !layer_->children().empty()) {
      fail<InvalidArgument>("[layers] ", name_, " (ChannelsLast): ", type_,
                            " keeps more than parameters; a BatchNormalization has its own option, axis = -1");
    }
    if (const auto* const inner = dynamic_cast<const Constrained*>(layer_.get())) constrain_as(*inner);
  }

  void train(bool on) override {
    LayerModule::train(on);
    layer_->train(on);
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() != static_cast<int64_t>(input_.size()) + 1 || x.size(-1) != input_.back()) {
      fail_called(name_, type_, x, to_text(input_) + " an example");
    }
    const torch::Tensor y = layer_->forward(x.movedim(-1, 1));
    return activation_(y.dim() > 2 ? y.movedim(1, -1) : y);
  }
  torch::Tensor mask_of(const torch::Tensor& x, const torch::Tensor& mask) override { return layer_->mask_of(x, mask); }
  torch::Tensor penalty() const override { return layer_->penalty(); }
  void set_frozen(bool frozen) override { layer_->set_frozen(frozen); }

 private:
  std::shared_ptr<LayerModule> layer_;
  Activation activation_;
  std::string_view type_;
  std::string name_;
  Shape input_;
};

class ChannelsLastKind final : public LayerKind {
 public:
  ChannelsLastKind(std::shared_ptr<const LayerKind> kind, Activation activation)
      : kind_(std::move(kind)), activation_(std::move(activation)) {}
  std::string_view type() const override { return kind_->type(); }
  std::string_view base_name() const override { return kind_->base_name(); }
  Shape output_shape(const BuildContext& context) const override {
    Shape output = kind_->output_shape(inner(context));
    if (output.size() > 1) std::rotate(output.begin(), output.begin() + 1, output.end());
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<ChannelsLastModule>(kind_->build(inner(context)), activation_, type(), context);
  }

 private:
  BuildContext inner(const BuildContext& context) const {
    // "Conv2D" wants two dimensions besides the channels: an image without channels is not one with its rows as them.
    const std::size_t digit = type().find_first_of("123");
    const std::size_t wanted = digit == std::string_view::npos ? 0 : static_cast<std::size_t>(type()[digit] - '0') + 1;
    if (context.input.size() < 2 || (wanted != 0 && context.input.size() != wanted)) {
      fail_input(context.name, type(), to_text(context.input) + " an example",
                 wanted == 0 ? "[..., channels]" : c10::str(wanted, " dimensions, the channels last"));
    }
    BuildContext first = context;
    std::rotate(first.input.begin(), first.input.end() - 1, first.input.end());
    return first;
  }

  std::shared_ptr<const LayerKind> kind_;
  Activation activation_;
};

}  // namespace

Layer ChannelsLast(const Layer& layer, const Activation& activation) {
  const ChannelsLastParts given = {.layer = layer, .activation = activation};
  return Layer(made_with<ChannelsLastKind>(given, layer.shared_kind(), activation), layer.name(), layer.trainable());
}

}  // namespace cohort
