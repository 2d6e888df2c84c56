#include "train/layers/layer_chain.h"

#include "base/fail.h"
#include "base/operation_refused.h"
#include "cohort/parallel/stages.h"
#include "strategy/context.h"
#include "strategy/replica_scope.h"

namespace cohort {

LayerChain::LayerChain(std::vector<std::string> names, std::vector<std::shared_ptr<LayerModule>> layers)
    : names_(std::move(names)), layers_(std::move(layers)), begins_chunk_(layers_.size(), false) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    makes_masks_ = makes_masks_ || layers_[i]->makes_mask();
    pooled_.push_back(i + 1 < layers_.size() ? pooled_before(*layers_[i], *layers_[i + 1]) : Pooled());
  }
}

LayerChain::Pooled LayerChain::pooled_before(LayerModule& layer, LayerModule& next) {
  auto* const convolution = dynamic_cast<ConvolutionModule*>(&layer);
  auto* const pooling = dynamic_cast<PoolingModule*>(&next);
  if (convolution == nullptr || pooling == nullptr || !pooling->takes_maximum()) return {};
  if (!convolution->activation().is_relu() && !convolution->activation().is_linear()) return {};
  return {.convolution = convolution, .pooling = pooling};
}

torch::Tensor LayerChain::forward(const torch::Tensor& input) const {
  torch::Tensor x = input;
  std::size_t i = 0;
  try {
    for (; i < layers_.size(); ++i) {
      x = entering(i, x);
      x = pooled_[i].convolution == nullptr ? layers_[i]->forward(x) : forward_pooled(i, x);
    }
  } catch (const OperationRefused& error) {
    fail<Unimplemented>("[model] the layer \"", names_[i], "\": ", error.what());
  }
  return x;
}

// The relu may come last: the largest of relus is the relu of the largest, bit for bit, so is the gradient, and there
// are only a fraction of the elements to do it for.
torch::Tensor LayerChain::forward_pooled(std::size_t& layer, const torch::Tensor& x) const {
  const auto [convolution, pooling] = pooled_[layer];
  const Activation& activation = convolution->activation();
  torch::Tensor y = convolution->fused(x, {.relu = activation.is_relu(), .pooling = &pooling->window()});
  if (y.defined()) {
    ++layer;
    return y;
  }
  y = convolution->convolve(x);
  ++layer;  // an error is that of the pooling from here on
  return activation.overwrite(pooling->forward(y));
}

// The mask goes beside the values from the layer that makes it to the last one that keeps the steps.
torch::Tensor LayerChain::forward(const torch::Tensor& input, torch::Tensor& mask) const {
  torch::Tensor x = input;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto& layer = layers_[i];
    x = entering(i, x);
    const torch::Tensor y = mask.defined() ? layer->forward_masked(x, mask) : layer->forward(x);
    mask = mask.defined() || layer->makes_mask() ? layer->mask_of(x, mask) : mask;
    x = y;
  }
  return x;
}

void LayerChain::begin_chunk(std::size_t layer) {
  begins_chunk_[layer] = true;
  pooled_[layer - 1] = {};  // does its own work alone
}

torch::Tensor LayerChain::entering(std::size_t layer, const torch::Tensor& x) const {
  if (!begins_chunk_[layer]) return x;
  // PipelineOptions::cut may have the name.
  if (ReplicaScope* const call = thread_context().replica_scope) call->begins_at(names_[layer]);
  return next_stage(x);
}

}  // namespace cohort
