// Bidirectional: a recurrent layer and the same layer in the other direction, each with parameters of its own.
#include <ATen/Functions.h>

#include "cohort/train/layers/recurrent.h"
#include "train/layers/support.h"
#include "wings/layers/train/recurrent.h"

namespace cohort {

namespace {

using Merge = BidirectionalOptions::Merge;

// Returns the same layer in the other direction.
RecurrentKind reversed(const RecurrentKind& kind) {
  Recurrence other = kind.recurrence();
  other.go_backwards = !other.go_backwards;
  return RecurrentKind(std::move(other));
}

class BidirectionalModule final : public LayerModule {
 public:
  BidirectionalModule(const RecurrentKind& kind, Merge merge, const BuildContext& context)
      : merge_(merge),
        sequences_(kind.recurrence().return_sequences),
        forward_(register_module("forward", kind.build(context))),
        backward_(register_module("backward", reversed(kind).build(context))) {}

  torch::Tensor forward(const torch::Tensor& x) override { return merged(forward_->forward(x), backward_->forward(x)); }
  torch::Tensor forward_masked(const torch::Tensor& x, const torch::Tensor& mask) override {
    return merged(forward_->forward_masked(x, mask), backward_->forward_masked(x, mask));
  }
  torch::Tensor mask_of(const torch::Tensor& x, const torch::Tensor& mask) override {
    return forward_->mask_of(x, mask);
  }
  torch::Tensor penalty() const override {
    const torch::Tensor there = forward_->penalty();
    return there.defined() ? there + backward_->penalty() : there;
  }

 private:
  // The outputs of the second direction come in its order of the steps.
  torch::Tensor merged(const torch::Tensor& there, const torch::Tensor& turned) const {
    const torch::Tensor back = sequences_ ? turned.flip({1}) : turned;
    switch (merge_) {
      case Merge::kSum:
        return there + back;
      case Merge::kMul:
        return there * back;
      case Merge::kAve:
        return (there + back) / 2.0;
      default:
        return at::cat({there, back}, -1);
    }
  }

  Merge merge_;
  bool sequences_;
  std::shared_ptr<LayerModule> forward_, backward_;
};

class BidirectionalKind final : public LayerKind {
 public:
  BidirectionalKind(Recurrence recurrence, Merge merge) : kind_(std::move(recurrence)), merge_(merge) {}
  std::string_view type() const override { return "Bidirectional"; }
  std::string_view base_name() const override { return "bidirectional"; }
  Shape output_shape(const BuildContext& context) const override {
    Shape output = kind_.output_shape(context);
    if (merge_ == Merge::kConcat) output.back() *= 2;
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<BidirectionalModule>(kind_, merge_, context);
  }

 private:
  RecurrentKind kind_;
  Merge merge_;
};

}  // namespace

Layer Bidirectional(const Layer& layer, const BidirectionalOptions& options) {
  const auto kind = std::dynamic_pointer_cast<const RecurrentKind>(layer.shared_kind());
  if (!kind) fail_option("Bidirectional", "wants an LSTM or a GRU, got a ", layer.type());
  Recurrence recurrence = kind->recurrence();
  recurrence.zero_where_masked = true;
  const BidirectionalParts given = {.layer = layer, .options = options};
  return Layer(made_with<BidirectionalKind>(given, std::move(recurrence), options.merge_mode), options.name,
               layer.trainable());
}

}  // namespace cohort
