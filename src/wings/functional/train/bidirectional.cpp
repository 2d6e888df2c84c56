// Bidirectional: a recurrent layer and one in the other direction, each with parameters of its own. It knows a
// recurrent layer by the names of its options, so that layers of any wing fit.
#include <ATen/Functions.h>

#include "base/extension.h"
#include "train/layers/layer_row.h"
#include "wings/functional/train/rnn.h"

namespace cohort {

namespace {

using MergeMode = BidirectionalOptions::Merge;

// A recurrent layer with its options by their names.
class RecurrentLayer {
 public:
  explicit RecurrentLayer(Layer layer) : layer_(std::move(layer)) {
    for (const LayerRow& row : extensions<LayerRow>()) {
      if (row.type == layer_.type()) row_ = &row;
    }
    std::optional<LayerConfig> told = row_ == nullptr ? std::nullopt : row_->tell(layer_.kind().options());
    if (told.has_value()) config_ = *std::move(told);
    for (const char* const name : {"go_backwards", "return_sequences", "zero_output_for_mask"}) {
      if (flag(name).has_value()) continue;
      fail_option("Bidirectional", "wants a recurrent layer, such as LSTM, GRU or RNN, got a ", layer_.type());
    }
  }

  // Returns an option; nothing: the layer has none of this name.
  std::optional<bool> flag(std::string_view name) const {
    for (const auto& [given, value] : config_) {
      if (given == name && std::holds_alternative<bool>(value)) return std::get<bool>(value);
    }
    return std::nullopt;
  }
  // Returns the same layer with another value of an option.
  RecurrentLayer with(std::string_view name, bool value) const {
    RecurrentLayer other = *this;
    for (auto& [given, option] : other.config_) {
      if (given == name) option = value;
    }
    return other;
  }
  // Returns the kind of layer whose masked steps are zeros in sequences.
  std::shared_ptr<const GraphLayerKind> kind() const {
    const Layer layer = row_->make(with("zero_output_for_mask", *flag("return_sequences")).config_);
    auto kind = std::dynamic_pointer_cast<const GraphLayerKind>(layer.shared_kind());
    if (kind) return kind;
    fail_option("Bidirectional", "wants a recurrent layer that takes states, got a ", layer_.type());
  }
  bool trainable() const { return layer_.trainable(); }

 private:
  Layer layer_;
  const LayerRow* row_ = nullptr;
  LayerConfig config_;
};

// Returns the sequence and the states of one direction. The states of the first one come first.
template <typename T>
std::vector<T> one_direction(const std::vector<T>& inputs, bool first) {
  std::vector<T> own = {inputs.front()};
  const auto half = static_cast<std::ptrdiff_t>((inputs.size() - 1) / 2);
  const auto begin = inputs.begin() + 1 + (first ? 0 : half);
  own.insert(own.end(), begin, begin + half);
  return own;
}

// The options that both directions have.
struct BothDirections {
  MergeMode merge = MergeMode::kConcat;
  bool sequences = false;
};

class BidirectionalModule final : public GraphLayerModule {
 public:
  BidirectionalModule(const BothDirections& both, std::shared_ptr<GraphLayerModule> ahead,
                      std::shared_ptr<GraphLayerModule> back)
      : both_(both),
        forward_(register_module("forward", std::move(ahead))),
        backward_(register_module("backward", std::move(back))) {}

  LayerValues forward_values(const LayerValues& given) override {
    LayerValues inputs = given;
    inputs.masks.resize(1);
    inputs.tensors = one_direction(given.tensors, /*first=*/true);
    const LayerValues ahead = forward_->forward_values(inputs);
    inputs.tensors = one_direction(given.tensors, /*first=*/false);
    const LayerValues back = backward_->forward_values(inputs);
    // The outputs of the second direction come in its order of the steps.
    const torch::Tensor& turned = back.tensors.front();
    LayerValues outputs{.tensors = merged(ahead.tensors.front(), both_.sequences ? turned.flip({1}) : turned)};
    outputs.masks.assign(outputs.tensors.size(), mask_of(inputs.tensors.front(), inputs.masks.front()));
    for (const LayerValues* const each : {&ahead, &back}) {
      outputs.tensors.insert(outputs.tensors.end(), each->tensors.begin() + 1, each->tensors.end());
    }
    outputs.masks.resize(outputs.tensors.size());
    return outputs;
  }
  torch::Tensor mask_of(const torch::Tensor& x, const torch::Tensor& mask) override {
    return forward_->mask_of(x, mask);
  }
  torch::Tensor penalty() const override {
    const torch::Tensor ahead = forward_->penalty(), back = backward_->penalty();
    return ahead.defined() && back.defined() ? ahead + back : ahead.defined() ? ahead : back;
  }

 private:
  std::vector<torch::Tensor> merged(const torch::Tensor& ahead, const torch::Tensor& back) const {
    switch (both_.merge) {
      case MergeMode::kSum:
        return {ahead + back};
      case MergeMode::kMul:
        return {ahead * back};
      case MergeMode::kAve:
        return {(ahead + back) / 2.0};
      case MergeMode::kNone:
        return {ahead, back};
      default:
        return {at::cat({ahead, back}, -1)};
    }
  }

  BothDirections both_;
  std::shared_ptr<GraphLayerModule> forward_, backward_;
};

class BidirectionalKind final : public GraphLayerKind {
 public:
  BidirectionalKind(const BothDirections& both, std::shared_ptr<const GraphLayerKind> ahead,
                    std::shared_ptr<const GraphLayerKind> back)
      : both_(both), ahead_(std::move(ahead)), back_(std::move(back)) {}
  std::string_view type() const override { return "Bidirectional"; }
  std::string_view base_name() const override { return "bidirectional"; }

  std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const override {
    if (inputs.front().size() != 2) {
      fail_input(context.name, type(), to_text(inputs.front()) + " an example", "[steps, size]");
    }
    if (inputs.size() % 2 == 0) {
      fail<InvalidArgument>("[layers] ", context.name, " (Bidirectional): got ", inputs.size() - 1,
                            " initial states, wanted as many for each direction");
    }
    const std::vector<Shape> ahead = ahead_->output_shapes(context, one_direction(inputs, /*first=*/true));
    const std::vector<Shape> back = back_->output_shapes(context, one_direction(inputs, /*first=*/false));
    std::vector<Shape> outputs = {ahead.front()};
    if (both_.merge == MergeMode::kConcat) {
      outputs.front().back() += back.front().back();
    } else if (both_.merge == MergeMode::kNone) {
      outputs.push_back(back.front());
    } else if (ahead.front() != back.front()) {
      fail<InvalidArgument>("[layers] ", context.name, " (Bidirectional): the directions have ", to_text(ahead.front()),
                            " and ", to_text(back.front()), " an example, wanted the same to add, multiply or average");
    }
    for (const std::vector<Shape>* const each : {&ahead, &back}) {
      outputs.insert(outputs.end(), each->begin() + 1, each->end());
    }
    return outputs;
  }
  std::shared_ptr<GraphLayerModule> build_for(const BuildContext& context,
                                              const std::vector<Shape>& inputs) const override {
    return std::make_shared<BidirectionalModule>(both_,
                                                 ahead_->build_for(context, one_direction(inputs, /*first=*/true)),
                                                 back_->build_for(context, one_direction(inputs, /*first=*/false)));
  }

 private:
  BothDirections both_;
  std::shared_ptr<const GraphLayerKind> ahead_, back_;
};

}  // namespace

Layer Bidirectional(const Layer& layer, const BidirectionalOptions& options) {
  const RecurrentLayer ahead(layer);
  const bool turned = !*ahead.flag("go_backwards");
  const RecurrentLayer back =
      options.backward_layer ? RecurrentLayer(*options.backward_layer) : ahead.with("go_backwards", turned);
  if (back.flag("go_backwards") != turned) {
    fail_option("Bidirectional", "both layers go ", turned ? "forwards" : "backwards", ", wanted two directions");
  }
  for (const char* const name : {"return_sequences", "return_state"}) {
    if (ahead.flag(name).value_or(false) == back.flag(name).value_or(false)) continue;
    fail_option("Bidirectional", name, " differs between the directions, wanted the same");
  }
  if (ahead.trainable() != back.trainable()) {
    fail_option("Bidirectional", "one direction is trainable and the other is not, wanted the same");
  }
  const BothDirections both{.merge = options.merge_mode, .sequences = *ahead.flag("return_sequences")};
  return Layer(made_with<BidirectionalKind>(BidirectionalParts{.layer = layer, .options = options}, both, ahead.kind(),
                                            back.kind()),
               options.name, layer.trainable());
}

}  // namespace cohort
