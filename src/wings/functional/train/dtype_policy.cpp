// WithPolicy: a layer whose inputs and outputs are rounded to half precision.
#include "wings/functional/train/dtype_policy.h"

#include <optional>

#include "base/libtorch_compat.h"
#include "cohort/train/layers/graph_layer.h"
#include "device/backend.h"
#include "step/constrained.h"
#include "train/layers/batch_norm_module.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

torch::ScalarType half_of(DTypePolicy policy) {
  const bool brain = policy == DTypePolicy::kMixedBFloat16 || policy == DTypePolicy::kBFloat16;
  return brain ? torch::kBFloat16 : torch::kHalf;
}

bool keeps_half(DTypePolicy policy) {
  return policy == DTypePolicy::kFloat16 || policy == DTypePolicy::kBFloat16;
}

[[noreturn]] void fail_learning(const std::string& name, std::string_view type) {
  fail<InvalidArgument>("[layers] ", name.empty() ? "WithPolicy" : name, " (", type,
                        "): a layer that learns cannot have parameters in half precision; freeze it, or take a mixed "
                        "policy");
}

// A layer's module in half precision. The parameters of the layer become this module's, so that names have no further
// level.
template <typename Base>
class PolicyModule : public Base, public Constrained {
 public:
  PolicyModule(std::shared_ptr<LayerModule> layer, DTypePolicy policy, std::string name, std::string_view type)
      : layer_(std::move(layer)), policy_(policy), name_(std::move(name)), type_(type) {
    for (const auto& item : layer_->named_parameters(/*recurse=*/false)) {
      this->register_parameter(item.key(), item.value(), item.value().requires_grad());
    }
    for (const auto& item : layer_->named_buffers(/*recurse=*/false)) this->register_buffer(item.key(), item.value());
    for (const auto& item : layer_->named_children()) this->register_module(item.key(), item.value());
    if (const auto* const inner = dynamic_cast<const Constrained*>(layer_.get())) constrain_as(*inner);
  }

  void train(bool on) override {
    Base::train(on);
    layer_->train(on);
  }
  torch::Tensor mask_of(const torch::Tensor& x, const torch::Tensor& mask) override { return layer_->mask_of(x, mask); }
  bool makes_mask() const override { return layer_->makes_mask(); }
  torch::Tensor penalty() const override { return layer_->penalty(); }
  void set_frozen(bool frozen) override {
    if (!frozen && keeps_half(policy_)) fail_learning(name_, type_);
    layer_->set_frozen(frozen);
  }

 protected:
  LayerModule& layer() const { return *layer_; }
  torch::Tensor rounded(const torch::Tensor& x) const {
    return x.defined() && x.is_floating_point() ? x.to(half_of(policy_)).to(x.scalar_type()) : x;
  }
  // Calls fn where products are in half precision, if the device trains in it.
  template <typename Fn>
  auto in_half(const torch::Tensor& x, const Fn& fn) const {
    std::optional<compat::Autocast> autocast;
    if (backend_of(x.device()).trains_in(half_of(policy_))) autocast.emplace(x.device().type(), half_of(policy_));
    return fn();
  }

 private:
  std::shared_ptr<LayerModule> layer_;
  DTypePolicy policy_;
  std::string name_;
  std::string_view type_;
};

class PlainPolicyModule final : public PolicyModule<LayerModule> {
 public:
  PlainPolicyModule(std::shared_ptr<LayerModule> inner, DTypePolicy policy, const BuildContext& context,
                    std::string_view type)
      : PolicyModule(std::move(inner), policy, context.name, type), dtype_(context.dtype) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor own = rounded(x);
    return rounded(in_half(x, [&] { return layer().forward(own); }).to(dtype_));
  }
  torch::Tensor forward_masked(const torch::Tensor& x, const torch::Tensor& mask) override {
    const torch::Tensor own = rounded(x);
    return rounded(in_half(x, [&] { return layer().forward_masked(own, mask); }).to(dtype_));
  }

 private:
  torch::ScalarType dtype_;
};

class GraphPolicyModule final : public PolicyModule<GraphLayerModule> {
 public:
  GraphPolicyModule(const std::shared_ptr<GraphLayerModule>& inner, DTypePolicy policy, const BuildContext& context,
                    std::string_view type)
      : PolicyModule(inner, policy, context.name, type), graph_(*inner), dtype_(context.dtype) {}

  LayerValues forward_values(const LayerValues& inputs) override {
    LayerValues own = inputs;
    for (torch::Tensor& each : own.tensors) each = rounded(each);
    LayerValues outputs = in_half(inputs.tensors.front(), [&] { return graph_.forward_values(own); });
    for (torch::Tensor& each : outputs.tensors) {
      if (each.is_floating_point()) each = rounded(each.to(dtype_));
    }
    return outputs;
  }

 private:
  GraphLayerModule& graph_;
  torch::ScalarType dtype_;
};

class PolicyKind final : public LayerKind {
 public:
  PolicyKind(std::shared_ptr<const LayerKind> kind, DTypePolicy policy) : kind_(std::move(kind)), policy_(policy) {}
  std::string_view type() const override { return kind_->type(); }
  std::string_view base_name() const override { return kind_->base_name(); }
  Shape output_shape(const BuildContext& context) const override { return kind_->output_shape(context); }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    std::shared_ptr<LayerModule> inner = kind_->build(context);
    // Its statistics are the replicas' business, who look for the module.
    if (dynamic_cast<const BatchNormModule*>(inner.get()) != nullptr) return inner;
    return std::make_shared<PlainPolicyModule>(std::move(inner), policy_, context, type());
  }

 private:
  std::shared_ptr<const LayerKind> kind_;
  DTypePolicy policy_;
};

class GraphPolicyKind final : public GraphLayerKind {
 public:
  GraphPolicyKind(std::shared_ptr<const GraphLayerKind> kind, DTypePolicy policy)
      : kind_(std::move(kind)), policy_(policy) {}
  std::string_view type() const override { return kind_->type(); }
  std::string_view base_name() const override { return kind_->base_name(); }
  bool takes_attention_mask() const override { return kind_->takes_attention_mask(); }
  bool ends_masks() const override { return kind_->ends_masks(); }
  std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const override {
    return kind_->output_shapes(context, inputs);
  }
  std::shared_ptr<GraphLayerModule> build_for(const BuildContext& context,
                                              const std::vector<Shape>& inputs) const override {
    return std::make_shared<GraphPolicyModule>(kind_->build_for(context, inputs), policy_, context, type());
  }

 private:
  std::shared_ptr<const GraphLayerKind> kind_;
  DTypePolicy policy_;
};

}  // namespace

Layer WithPolicy(const Layer& layer, DTypePolicy policy) {
  if (layer.trainable() && keeps_half(policy)) fail_learning(layer.name(), layer.type());
  const DTypePolicyParts given = {.layer = layer, .policy = policy};
  if (auto graph = std::dynamic_pointer_cast<const GraphLayerKind>(layer.shared_kind())) {
    return Layer(made_with<GraphPolicyKind>(given, std::move(graph), policy), layer.name(), layer.trainable());
  }
  return Layer(made_with<PolicyKind>(given, layer.shared_kind(), policy), layer.name(), layer.trainable());
}

}  // namespace cohort
