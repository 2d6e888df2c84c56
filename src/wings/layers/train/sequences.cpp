// Masking, TimeDistributed and RepeatVector: layers for the steps of sequences.
#include <ATen/Functions.h>

#include "cohort/train/layers/sequences.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

class MaskingModule final : public LayerModule {
 public:
  explicit MaskingModule(double value) : value_(value) {}

  torch::Tensor forward(const torch::Tensor& x) override { return x * counts(x).unsqueeze(-1); }
  torch::Tensor mask_of(const torch::Tensor& x, const torch::Tensor& mask) override {
    return mask.defined() ? counts(x).logical_and(mask) : counts(x);
  }
  bool makes_mask() const override { return true; }

 private:
  torch::Tensor counts(const torch::Tensor& x) const { return x.ne(value_).any(-1); }

  double value_;
};

class MaskingKind final : public LayerKind {
 public:
  explicit MaskingKind(double value) : value_(value) {}
  std::string_view type() const override { return "Masking"; }
  std::string_view base_name() const override { return "masking"; }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() == 2) return context.input;
    fail_input(context.name, type(), to_text(context.input) + " an example", "[steps, size]");
  }
  std::shared_ptr<LayerModule> build(const BuildContext& /*context*/) const override {
    return std::make_shared<MaskingModule>(value_);
  }

 private:
  double value_;
};

class TimeDistributedModule final : public LayerModule {
 public:
  TimeDistributedModule(const LayerKind& kind, const BuildContext& inner, const BuildContext& context)
      : name_(context.name), rank_(context.input.size() + 1), layer_(register_module("layer", kind.build(inner))) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() != static_cast<int64_t>(rank_)) {
      fail_called(name_, "TimeDistributed", x, c10::str("[batch, steps, ...] of ", rank_, " dimensions"));
    }
    const torch::Tensor y = layer_->forward(x.flatten(0, 1));
    std::vector<int64_t> shape = y.sizes().vec();
    shape.erase(shape.begin());
    shape.insert(shape.begin(), {x.size(0), x.size(1)});
    return y.reshape(shape);
  }
  torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& mask) override { return mask; }
  torch::Tensor penalty() const override { return layer_->penalty(); }
  void set_frozen(bool frozen) override { layer_->set_frozen(frozen); }

 private:
  std::string name_;
  std::size_t rank_;
  std::shared_ptr<LayerModule> layer_;
};

class TimeDistributedKind final : public LayerKind {
 public:
  explicit TimeDistributedKind(std::shared_ptr<const LayerKind> kind) : kind_(std::move(kind)) {}
  std::string_view type() const override { return "TimeDistributed"; }
  std::string_view base_name() const override { return "time_distributed"; }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.empty()) {
      fail_input(context.name, type(), to_text(context.input) + " an example", "[steps, ...]");
    }
    Shape output = kind_->output_shape(inner(context));
    output.insert(output.begin(), context.input[0]);
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<TimeDistributedModule>(*kind_, inner(context), context);
  }

 private:
  // Returns the context of the layer in one step.
  static BuildContext inner(const BuildContext& context) {
    BuildContext step = context;
    step.input.erase(step.input.begin());
    return step;
  }

  std::shared_ptr<const LayerKind> kind_;
};

class RepeatVectorModule final : public LayerModule {
 public:
  RepeatVectorModule(int64_t n, const BuildContext& context) : n_(n), name_(context.name) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    if (x.dim() != 2) fail_called(name_, "RepeatVector", x, "[batch, size]");
    return x.unsqueeze(1).repeat({1, n_, 1});
  }

 private:
  int64_t n_;
  std::string name_;
};

class RepeatVectorKind final : public LayerKind {
 public:
  explicit RepeatVectorKind(int64_t n) : n_(n) {
    if (n <= 0) fail_option(type(), "n must be positive, got ", n);
  }
  std::string_view type() const override { return "RepeatVector"; }
  std::string_view base_name() const override { return "repeat_vector"; }
  Shape output_shape(const BuildContext& context) const override {
    if (context.input.size() == 1) return {n_, context.input[0]};
    fail_input(context.name, type(), to_text(context.input) + " an example", "[size]");
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<RepeatVectorModule>(n_, context);
  }

 private:
  int64_t n_;
};

}  // namespace

Layer RepeatVector(int64_t n) {
  return Layer(made_with<RepeatVectorKind>(n, n));
}

Layer Masking(double mask_value) {
  return Layer(made_with<MaskingKind>(mask_value, mask_value));
}

Layer TimeDistributed(const Layer& layer) {
  return Layer(made_with<TimeDistributedKind>(layer, layer.shared_kind()), {}, layer.trainable());
}

}  // namespace cohort
