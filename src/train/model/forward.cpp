// Here a replica calls its module: with the inputs of its share, by position or by name, in the model's precision.
#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "base/libtorch_compat.h"
#include "device/backend.h"
#include "strategy/core.h"
#include "strategy/divided.h"
#include "strategy/replica_scope.h"
#include "train/layers/layered_module.h"
#include "train/losses/support.h"
#include "train/model/model_state.h"

namespace cohort {

namespace detail {

void fail_inputs(const NamedTensors& inputs, const std::string& counts) {
  fail<InvalidArgument>("[model] forward() takes ", counts, " tensors, the examples have ", inputs.size(), ": ",
                        quoted_names(inputs));
}

}  // namespace detail

// Returns what forward() is given, in the order of the names that the model was made with: an input of the model's
// dtype or of integers.
NamedTensors ModelState::inputs_of(const Example& share) const {
  NamedTensors inputs = share.inputs;
  if (share.x.defined()) inputs.emplace_back(input_names_.size() == 1 ? input_names_.front() : "x", share.x);
  if (!input_names_.empty()) {
    NamedTensors ordered;
    for (const std::string& name : input_names_) {
      const auto found =
          std::find_if(inputs.begin(), inputs.end(), [&](const auto& each) { return each.first == name; });
      if (found != inputs.end()) ordered.push_back(*found);
    }
    if (ordered.size() != input_names_.size() || ordered.size() != inputs.size()) {
      fail<InvalidArgument>(speaker(), "the examples have the inputs ", quoted_names(inputs), ", the model takes ",
                            input_names_);
    }
    inputs = std::move(ordered);
  }
  for (auto& [name, input] : inputs) {
    if (!input.defined()) fail<InvalidArgument>(speaker(), "the input \"", name, "\" is undefined");
    if (input.is_floating_point() && input.scalar_type() != dtype_) input = input.to(dtype_);
  }
  return inputs;
}

// Divides the inputs of an example among the cores of the replica.
Example ModelState::divided(const Example& share, const std::vector<int64_t>& dims) const {
  Example own = share;
  bool any = false;
  const auto divide = [&](torch::Tensor& input) {
    if (!input.defined() || input.dim() != static_cast<int64_t>(dims.size())) return;
    any = true;
    // No core has a part of a share without examples.
    if (input.numel() > 0) {
      input = split_among_cores(*Access::core(strategy_), input, dims, "input_partition_dims");
    }
  };
  divide(own.x);
  for (auto& [name, input] : own.inputs) divide(input);
  if (any) return own;
  fail<InvalidArgument>(speaker(), "input_partition_dims has ", dims.size(), " numbers, [", c10::Join(", ", dims),
                        "], but no input of the model has as many dimensions; the first is ", share.input().sizes());
}

NamedTensors ModelState::forward(const Replica& replica, const Example& share) const {
  const ReplicaCores& cores = Access::core(strategy_)->plan().cores;
  const std::vector<int64_t>& dims = torch::GradMode::is_enabled() ? cores.train_dims : cores.eval_dims;
  if (dims.empty()) return call_module(replica, share);
  NamedTensors outputs = call_module(replica, divided(share, dims));
  // Losses and metrics take whole values, on every replica that has a part.
  for (auto& [name, output] : outputs) output = whole_of(output);
  return outputs;
}

NamedTensors ModelState::call_module(const Replica& replica, const Example& share) const {
  const detail::ModuleCall& call = calls_[static_cast<std::size_t>(replica.local_id())];
  const int64_t examples = share.size();
  const torch::Tensor& input = share.input();
  if (input.defined() && Access::core(strategy_)->backend(replica.local_id()).is_card()) search_.note(input.sizes());
  NamedTensors outputs;
  std::optional<compat::Autocast> autocast;
  if (precision_ != PrecisionPolicy::kFloat32) {
    const auto half = precision_ == PrecisionPolicy::kMixedFloat16 ? torch::kHalf : torch::kBFloat16;
    autocast.emplace(share.input().device().type(), half);
  }
  if (call.one && share.inputs.empty() && input_names_.size() <= 1) {
    const bool convert = share.x.is_floating_point() && share.x.scalar_type() != dtype_;
    outputs.emplace_back(std::string(), call.one(convert ? share.x.to(dtype_) : share.x));
  } else {
    outputs = call.several(inputs_of(share));
  }
  for (auto& [name, output] : outputs) {
    if (!output.defined() || output.dim() == 0 || output.size(0) != examples) {
      fail<InvalidArgument>(speaker(), "the output ", name.empty() ? "" : "\"" + name + "\" ", "of ", examples,
                            " examples ",
                            output.defined() ? c10::str("has shape ", output.sizes()) : std::string("is undefined"),
                            ", wanted [", examples, ", ...]");
    }
    if (autocast && output.is_floating_point()) output = output.to(dtype_);
  }
  return outputs;
}

NamedTensors ModelState::named_outputs(const Replica& replica, const Example& share) const {
  NamedTensors outputs = forward(replica, share);
  if (LayeredModule* const layers = layers_of(replica)) layers->take_output_masks();
  const bool declared = output_names_.size() == outputs.size();
  const bool compiled = outputs_ && outputs_->list().size() == outputs.size();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::string& name = outputs[i].first;
    if (name.empty() && declared) name = output_names_[i];
    if (name.empty() && compiled) name = outputs_->list()[i].name;
    if (name.empty()) name = outputs.size() == 1 ? "output" : "output_" + std::to_string(i + 1);
    outputs[i].second = whole_of(outputs[i].second);
  }
  return outputs;
}

LayeredModule* ModelState::layers_of(const Replica& replica) const {
  return dynamic_cast<LayeredModule*>(calls_[static_cast<std::size_t>(replica.local_id())].module.get());
}

std::vector<OutputShare> ModelState::judge(const Replica& replica, const Example& share) const {
  std::vector<torch::Tensor> predictions = outputs_->arrange(forward(replica, share));
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const std::optional<Loss>& loss = outputs_->list()[i].loss;
    const auto* taker = loss ? dynamic_cast<const TakesParts*>(&loss->rule()) : nullptr;
    if (taker == nullptr || !taker->takes_parts()) predictions[i] = whole_of(predictions[i]);
  }
  LayeredModule* const layers = layers_of(replica);
  const std::vector<torch::Tensor> masks =
      layers == nullptr ? std::vector<torch::Tensor>() : layers->take_output_masks();
  std::vector<OutputShare> outputs;
  outputs.reserve(predictions.size());
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    if (i >= masks.size() || !masks[i].defined()) {
      outputs.push_back(outputs_->share_of(share, i, std::move(predictions[i])));
      continue;
    }
    const torch::Tensor mask = whole_of(masks[i]);  // as a mask of the examples
    if (share.mask.defined()) require_whole_share("a mask that layers make, beside one of the examples,");
    Example counted = share;
    counted.mask = share.mask.defined() ? share.mask.logical_and(mask) : mask;
    outputs.push_back(outputs_->share_of(counted, i, std::move(predictions[i])));
  }
  return outputs;
}

}  // namespace cohort
