// Layers that are called by themselves: each is the model that has it alone, made at its first call.
#include "base/access.h"
#include "base/fail.h"
#include "cohort/replica.h"
#include "wings/functional/train/shared_layers.h"

namespace cohort {

namespace {

struct ModelOfOneLayer : Model {
  explicit ModelOfOneLayer(std::shared_ptr<ModelState> state) : Model(std::move(state)) {}
};

void make_alone(const Layer& layer, const torch::Tensor& x, const Strategy& strategy) {
  if (const SharedLayer* const shared = shared_layer(layer); shared != nullptr && shared->alone) return;
  if (!x.defined() || x.dim() == 0) {
    fail<InvalidArgument>("[layers] ", name_of(layer), ": called on ", x.defined() ? "a scalar" : "an undefined tensor",
                          ", wanted [batch, ...]");
  }
  const StrategyScope scope = strategy.scope();
  const bool floating = x.is_floating_point();
  const SymbolicTensor input =
      Input(x.sizes().slice(1).vec(), {.dtype = floating ? torch::kFloat : x.scalar_type(), .name = "x"});
  // The model has a twin of the layer, which would hold the model, and itself, for ever.
  const Layer twin = layer.named(layer.name());
  twin.instance()->built = layer.instance()->built;
  FunctionalPlan plan = make_plan(name_of(layer), {input}, call_layer(twin, input));
  plan.any_sizes = true;
  const FunctionalOptions options{.name = name_of(layer), .dtype = floating ? x.scalar_type() : torch::kFloat};
  ModelOfOneLayer model(make_functional(plan, options));
  layer.instance()->built = std::make_shared<SharedLayer>(
      SharedLayer{.strategy = strategy, .copies = shared_layer(twin)->copies, .alone = model});
}

}  // namespace

torch::Tensor call_layer(const Layer& layer, const torch::Tensor& x) {
  return call_layer(layer, x, CallOptions{});
}

torch::Tensor call_layer(const Layer& layer, const torch::Tensor& x, const CallOptions& options) {
  const SharedLayer* const shared = shared_layer(layer);
  if (shared == nullptr || !shared->alone) {
    const auto make = [&](const Strategy& strategy) { make_alone(layer, x, strategy); };
    Replica* const replica = Replica::current();
    replica == nullptr ? make(current_strategy()) : replica->merge_call(make);
  }
  return (*shared_layer(layer)->alone)(x, options);
}

Model as_model(const Layer& layer) {
  const SharedLayer* const shared = shared_layer(layer);
  if (shared != nullptr && shared->alone) return *shared->alone;
  fail<FailedPrecondition>("[layers] ", name_of(layer), ": as_model: the layer was not called by itself yet");
}

}  // namespace cohort
