#include "wings/functional/train/functional_module.h"

#include <algorithm>

#include "base/fail.h"
#include "base/operation_refused.h"
#include "cohort/parallel/stages.h"
#include "strategy/context.h"
#include "strategy/replica_scope.h"

namespace cohort {

namespace {

// The microbatches of a pipeline are threads that go through one module, so that it cannot keep what it has for one.
struct LastMasks {
  const FunctionalModule* of = nullptr;
  std::vector<torch::Tensor> masks = {};
};
thread_local LastMasks last_masks;

}  // namespace

FunctionalModule::FunctionalModule(std::shared_ptr<const FunctionalPlan> plan, std::vector<Child> children)
    : torch::nn::Module("Functional"), plan_(std::move(plan)), children_(std::move(children)) {
  for (std::size_t i = 0; i < children_.size(); ++i) {
    register_module(plan_->layers[i].layer.name(), children_[i].module);
  }
  make_units({});
  FunctionalModule::train(is_training());
}

bool FunctionalModule::is_plain(std::size_t call) const {
  const FunctionalPlan::Planned& layer = plan_->layers[plan_->calls[call].layer];
  const auto& module = children_[plan_->calls[call].layer].module;
  return layer.calls.size() == 1 && plan_->calls[call].node->masked.empty() && plan_->calls[call].unmasked.empty() &&
         dynamic_cast<LayerModule*>(module.get()) != nullptr &&
         dynamic_cast<GraphLayerModule*>(module.get()) == nullptr;
}

bool FunctionalModule::continues(std::size_t call, const std::vector<std::size_t>& uses) const {
  const FunctionalPlan::Call& before = plan_->calls[call - 1];
  const FunctionalPlan::Call& own = plan_->calls[call];
  return is_plain(call - 1) && is_plain(call) && own.inputs.front() == before.first && uses[before.first] == 1;
}

FunctionalModule::Unit FunctionalModule::make_unit(std::size_t first, std::size_t last) const {
  Unit unit{.first_call = first, .last_call = last};
  if (!is_plain(first)) return unit;
  std::vector<std::string> names;
  std::vector<std::shared_ptr<LayerModule>> layers;
  for (std::size_t call = first; call <= last; ++call) {
    names.push_back(plan_->layers[plan_->calls[call].layer].layer.name());
    layers.push_back(std::dynamic_pointer_cast<LayerModule>(children_[plan_->calls[call].layer].module));
  }
  unit.chain.emplace(std::move(names), std::move(layers));
  return unit;
}

void FunctionalModule::make_units(const std::set<std::size_t>& chunks) {
  units_.clear();
  const std::vector<std::size_t> uses = plan_->uses();
  for (std::size_t first = 0; first < plan_->calls.size();) {
    std::size_t last = first;
    while (last + 1 < plan_->calls.size() && !chunks.contains(last + 1) && continues(last + 1, uses)) ++last;
    units_.push_back(make_unit(first, last));
    if (chunks.contains(first)) units_.back().begins_chunk = place_name(first);
    first = last + 1;
  }
  note_last_uses();
}

// Values go as soon as nobody needs them, which is what evaluation takes memory for; those of training stay in the
// graph of the gradients. What later units need of earlier ones crosses into a chunk; inputs are there anyway.
void FunctionalModule::note_last_uses() {
  std::vector<std::size_t> last(plan_->values, 0);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (const std::size_t value : plan_->calls[units_[u].first_call].inputs) last[value] = u;
  }
  for (const std::size_t value : plan_->output_values) last[value] = units_.size();
  std::vector<std::size_t> made(plan_->values, units_.size());
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const FunctionalPlan::Call& call = plan_->calls[units_[u].last_call];
    for (std::size_t o = 0; o < call.node->shapes.size(); ++o) made[call.first + o] = u;
  }
  for (std::size_t value = plan_->inputs.size(); value < plan_->values; ++value) {
    if (made[value] == units_.size()) continue;  // within a chain
    if (last[value] < units_.size()) units_[std::max(last[value], made[value])].done.push_back(value);
    for (std::size_t u = made[value] + 1; u <= last[value] && u < units_.size(); ++u) {
      if (!units_[u].begins_chunk.empty()) units_[u].crossing.push_back(value);
    }
  }
}

void FunctionalModule::enter_chunk(const Unit& unit, std::vector<torch::Tensor>& values) {
  // PipelineOptions::cut may have the name.
  if (ReplicaScope* const call = thread_context().replica_scope) call->begins_at(unit.begins_chunk);
  std::vector<torch::Tensor> crossing;
  for (const std::size_t value : unit.crossing) crossing.push_back(values[value]);
  crossing = next_stage(crossing);
  for (std::size_t i = 0; i < crossing.size(); ++i) values[unit.crossing[i]] = crossing[i];
}

LayerValues FunctionalModule::forward_values(const LayerValues& inputs) const {
  std::vector<torch::Tensor> values(plan_->values), masks(plan_->values);
  for (std::size_t i = 0; i < plan_->inputs.size(); ++i) {
    values[i] = inputs.tensors[i];
    if (i < inputs.masks.size()) masks[i] = inputs.masks[i];
  }
  for (const Unit& unit : units_) {
    if (!unit.begins_chunk.empty()) enter_chunk(unit, values);
    const FunctionalPlan::Call& call = plan_->calls[unit.first_call];
    const std::size_t first = plan_->calls[unit.last_call].first;
    if (unit.chain) {
      torch::Tensor mask = masks[call.inputs.front()];
      const torch::Tensor& x = values[call.inputs.front()];
      const bool masked = mask.defined() || unit.chain->makes_masks();
      values[first] = masked ? unit.chain->forward(x, mask) : unit.chain->forward(x);
      masks[first] = mask;
    } else {
      LayerValues own;
      const std::size_t count = call.node->tensors();
      for (std::size_t i = 0; i < count; ++i) {
        own.tensors.push_back(values[call.inputs[i]]);
        own.masks.push_back(masks[call.inputs[i]]);
      }
      for (const std::size_t i : call.unmasked) own.masks[i] = torch::Tensor();
      for (std::size_t i = count; i < call.inputs.size(); ++i) {
        own.masks.resize(std::max(count, call.node->masked[i - count] + 1));
        own.masks[call.node->masked[i - count]] = values[call.inputs[i]];
      }
      LayerValues made = children_[call.layer].call(own);
      for (std::size_t o = 0; o < made.tensors.size(); ++o) {
        values[first + o] = std::move(made.tensors[o]);
        if (o < made.masks.size()) masks[first + o] = std::move(made.masks[o]);
      }
    }
    for (const std::size_t value : unit.done) values[value] = masks[value] = torch::Tensor();
  }
  LayerValues outputs;
  for (const std::size_t value : plan_->output_values) {
    outputs.tensors.push_back(values[value]);
    outputs.masks.push_back(masks[value]);
  }
  return outputs;
}

void FunctionalModule::check(const std::vector<torch::Tensor>& inputs) const {
  if (plan_->any_sizes) return;
  for (std::size_t i = 0; i < plan_->inputs.size(); ++i) {
    const Shape& shape = plan_->inputs[i].shape();
    const torch::Tensor& x = inputs[i];
    bool fits = x.dim() == static_cast<int64_t>(shape.size()) + 1;
    for (std::size_t d = 0; fits && d < shape.size(); ++d) {
      fits = shape[d] < 0 || shape[d] == x.size(static_cast<int64_t>(d) + 1);
    }
    const bool integers = !at::isFloatingType(plan_->inputs[i].dtype());
    if (fits && integers != x.is_floating_point()) continue;
    std::string wanted = "[batch";
    for (const int64_t size : shape) wanted += ", " + (size < 0 ? std::string("?") : std::to_string(size));
    fail<InvalidArgument>("[model] ", plan_->name, ": the input \"", plan_->input_names()[i], "\" is ", x.scalar_type(),
                          x.sizes(), ", wanted ", plan_->inputs[i].dtype(), wanted, "]");
  }
}

std::vector<torch::Tensor> FunctionalModule::forward(const std::vector<torch::Tensor>& inputs) const {
  if (inputs.size() != plan_->inputs.size()) {
    fail<InvalidArgument>("[model] ", plan_->name, ": called with ", inputs.size(), " inputs, wanted ",
                          plan_->inputs.size(), ": ", plan_->input_names());
  }
  check(inputs);
  LayerValues outputs = forward_values({.tensors = inputs});
  last_masks = {.of = this, .masks = std::move(outputs.masks)};
  return std::move(outputs.tensors);
}

std::vector<torch::Tensor> FunctionalModule::take_output_masks() {
  if (last_masks.of != this) return {};
  return std::exchange(last_masks, {}).masks;
}

void FunctionalModule::train(bool on) {
  torch::nn::Module::train(on);
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (plan_->layers[i].training) children_[i].module->train(*plan_->layers[i].training);
  }
}

std::vector<torch::Tensor> FunctionalModule::penalties() const {
  std::vector<torch::Tensor> list;
  for (const Child& child : children_) {
    if (const auto* const layer = dynamic_cast<const LayerModule*>(child.module.get())) {
      const torch::Tensor cost = layer->penalty();
      if (cost.defined()) list.push_back(cost);
    } else if (const auto* const model = dynamic_cast<const LayeredModule*>(child.module.get())) {
      for (torch::Tensor& cost : model->penalties()) list.push_back(std::move(cost));
    }
  }
  return list;
}

std::string FunctionalModule::place_name(std::size_t call) const {
  const FunctionalPlan::Planned& layer = plan_->layers[plan_->calls[call].layer];
  const auto number = std::find(layer.calls.begin(), layer.calls.end(), call) - layer.calls.begin();
  return layer.layer.name() + (number == 0 ? "" : ":" + std::to_string(number));
}

std::vector<PlacedLayer> FunctionalModule::places() const {
  std::vector<PlacedLayer> list;
  for (std::size_t call = 0; call < plan_->calls.size(); ++call) {
    list.push_back({.name = place_name(call), .layer = children_[plan_->calls[call].layer].module});
  }
  return list;
}

void FunctionalModule::visit(const std::vector<torch::Tensor>& inputs, const LayerVisitor& visitor) {
  std::vector<torch::Tensor> values = inputs;
  values.resize(plan_->values);
  for (std::size_t c = 0; c < plan_->calls.size(); ++c) {
    const FunctionalPlan::Call& call = plan_->calls[c];
    const std::size_t count = call.node->tensors();
    std::vector<torch::Tensor> own, masks(count + 1);
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const torch::Tensor& value = values[call.inputs[i]];
      i < count ? own.push_back(value) : void(masks[call.node->masked[i - count]] = value);
    }
    const std::vector<torch::Tensor> made = visitor(c, own, [&](const std::vector<torch::Tensor>& x) {
      return children_[call.layer].call({.tensors = x, .masks = masks}).tensors;
    });
    for (std::size_t o = 0; o < made.size(); ++o) values[call.first + o] = made[o];
  }
}

void FunctionalModule::begin_chunks(const std::vector<std::size_t>& places) {
  make_units({places.begin(), places.end()});
}

std::vector<std::vector<std::shared_ptr<LayerModule>>> FunctionalModule::chains() const {
  std::vector<std::vector<std::shared_ptr<LayerModule>>> list;
  for (const Unit& unit : units_) {
    if (unit.chain) list.push_back(unit.chain->layers());
  }
  return list;
}

void FunctionalModule::leave_parts() {
  const std::vector<std::size_t> uses = plan_->uses();
  for (const FunctionalPlan::Call& call : plan_->calls) {
    const bool is_output =
        std::find(plan_->output_values.begin(), plan_->output_values.end(), call.first) != plan_->output_values.end();
    if (!is_output || uses[call.first] != 1 || plan_->layers[call.layer].calls.size() != 1) continue;
    if (auto* const layer = dynamic_cast<LeavesParts*>(children_[call.layer].module.get())) layer->leave_parts();
  }
}

}  // namespace cohort
