#include "wings/functional/train/shared_layers.h"

#include "base/access.h"
#include "base/fail.h"
#include "strategy/core.h"
#include "train/layers/sequential_module.h"
#include "train/model/model_state.h"

namespace cohort {

namespace {

FunctionalModule::Callee callee_of(const std::shared_ptr<LayerModule>& layer) {
  if (const auto graph = std::dynamic_pointer_cast<GraphLayerModule>(layer)) {
    return [graph](const LayerValues& inputs) { return graph->forward_values(inputs); };
  }
  return [layer](const LayerValues& inputs) {
    const torch::Tensor &x = inputs.tensors.front(), &mask = inputs.masks.front();
    LayerValues outputs{.tensors = {mask.defined() ? layer->forward_masked(x, mask) : layer->forward(x)}};
    if (mask.defined() || layer->makes_mask()) outputs.masks.push_back(layer->mask_of(x, mask));
    return outputs;
  };
}

// A model that is a layer. Masks go into models that are of layers; modules of the user's know of none.
FunctionalModule::Callee callee_of(const detail::ModuleCall& call) {
  if (const auto functional = std::dynamic_pointer_cast<FunctionalModule>(call.module)) {
    return [functional](const LayerValues& inputs) { return functional->forward_values(inputs); };
  }
  if (const auto layers = std::dynamic_pointer_cast<SequentialModule>(call.module)) {
    return [layers](const LayerValues& inputs) {
      LayerValues outputs{.tensors = {layers->forward(inputs.tensors.front(), inputs.masks.front())}};
      outputs.masks = {layers->take_output_mask()};
      return outputs;
    };
  }
  return [call](const LayerValues& inputs) {
    LayerValues outputs;
    if (call.one && inputs.tensors.size() == 1) {
      outputs.tensors = {call.one(inputs.tensors.front())};
      return outputs;
    }
    NamedTensors named;
    for (const torch::Tensor& each : inputs.tensors) named.emplace_back("", each);
    for (auto& [name, tensor] : call.several(named)) outputs.tensors.push_back(std::move(tensor));
    return outputs;
  };
}

// Returns whether both have the same copies. Models that are made outside of scopes have a strategy each: one replica
// on one device.
bool have_same_copies(const StrategyCore& a, const StrategyCore& b) {
  const auto is_default = [](const StrategyCore& core) { return core.plan().name == "off"; };
  return &a == &b || (is_default(a) && is_default(b) && a.parameter_device(0) == b.parameter_device(0));
}

}  // namespace

SharedLayer* shared_layer(const Layer& layer) {
  return static_cast<SharedLayer*>(layer.instance()->built.get());
}

LayersOfPlan::LayersOfPlan(const FunctionalPlan& plan, const Strategy& strategy, torch::ScalarType dtype)
    : plan_(plan), strategy_(strategy), dtype_(dtype), made_(plan.layers.size()) {
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const FunctionalPlan::Planned& planned = plan.layers[i];
    if (planned.node == nullptr) continue;
    if (const auto* const model = dynamic_cast<const ModelKind*>(&planned.node->layer.kind())) {
      require_sharable(planned, model->model().strategy());
      made_[i].assign(model->model().module().copies().begin(), model->model().module().copies().end());
    } else if (const SharedLayer* const shared = shared_layer(planned.node->layer)) {
      require_sharable(planned, shared->strategy);
      made_[i] = shared->copies;
    }
  }
}

void LayersOfPlan::require_sharable(const FunctionalPlan::Planned& planned, const Strategy& owner) const {
  const std::string who = c10::str("[model] ", plan_.name, ": the layer \"", planned.layer.name(), "\" ");
  const StrategyCore& core = *Access::core(strategy_);
  if (!have_same_copies(*Access::core(owner), core)) {
    fail<FailedPrecondition>(who, "was built under another strategy, ", owner.name(), ", than this model's, ",
                             strategy_.name());
  }
  const char* why = why_in_parts(core);
  if (why == nullptr && core.plan().in_microbatches) why = "the strategy is a pipeline";
  if (why == nullptr) return;
  fail<FailedPrecondition>(who, "is in another model already, whose parameters it would share, but ", why,
                           "; make one model of all layers");
}

BuildContext LayersOfPlan::context_of(const FunctionalPlan::Planned& planned) const {
  const SymbolicTensor& first = planned.node->inputs.front();
  const bool floating = at::isFloatingType(first.dtype());
  return {.name = planned.layer.name(),
          .input = first.shape(),
          .dtype = dtype_,
          .input_dtype = floating ? dtype_ : first.dtype()};
}

FunctionalModule::Child LayersOfPlan::child(std::size_t layer, std::size_t replica) const {
  const FunctionalPlan::Planned& planned = plan_.layers[layer];
  if (planned.node != nullptr) {
    if (const auto* const model = dynamic_cast<const ModelKind*>(&planned.node->layer.kind())) {
      return {.module = made_[layer][replica], .call = callee_of(model->model().calls()[replica])};
    }
  }
  std::shared_ptr<LayerModule> module;
  if (planned.node == nullptr) {
    module = planned.layer.kind().build({});
  } else if (replica < made_[layer].size()) {
    module = std::dynamic_pointer_cast<LayerModule>(made_[layer][replica]);
  } else if (const auto* const graph = dynamic_cast<const GraphLayerKind*>(&planned.node->layer.kind())) {
    std::vector<Shape> shapes;
    for (std::size_t i = 0; i < planned.node->tensors(); ++i) shapes.push_back(planned.node->inputs[i].shape());
    module = graph->build_for(context_of(planned), shapes);
  } else {
    module = planned.node->layer.kind().build(context_of(planned));
  }
  return {.module = module, .call = callee_of(module)};
}

std::vector<FunctionalModule::Child> LayersOfPlan::next() {
  std::vector<FunctionalModule::Child> children;
  for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
    children.push_back(child(i, replica_));
    for (const torch::Tensor& parameter : children.back().module->parameters(/*recurse=*/false)) {
      if (!parameter.is_floating_point() || parameter.scalar_type() == dtype_) continue;
      fail<InvalidArgument>("[model] ", plan_.name, ": the layer \"", plan_.layers[i].layer.name(),
                            "\" has parameters of ", parameter.scalar_type(), ", the model is of ", dtype_);
    }
    if (made_[i].size() == replica_) made_[i].push_back(children.back().module);
  }
  ++replica_;
  return children;
}

void LayersOfPlan::share() const {
  for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
    const detail::SymbolicNode* const node = plan_.layers[i].node;
    if (node == nullptr || dynamic_cast<const ModelKind*>(&node->layer.kind()) != nullptr) continue;
    if (shared_layer(node->layer) != nullptr) continue;
    node->layer.instance()->built =
        std::make_shared<SharedLayer>(SharedLayer{.strategy = strategy_, .copies = made_[i]});
  }
}

}  // namespace cohort
