#include "train/layers/sequential_module.h"

#include <map>
#include <set>

#include "base/fail.h"
#include "base/operation_refused.h"
#include "cohort/parallel/stages.h"
#include "strategy/context.h"
#include "strategy/replica_scope.h"

namespace cohort {

namespace {

template <typename Fn>
void walk(const std::vector<Layer>& layers, BuildContext context, const Fn& fn) {
  for (const Layer& layer : layers) {
    context.name = layer.name();
    Shape output = layer.kind().output_shape(context);
    fn(layer, context, output);
    context.input = std::move(output);
    context.input_dtype = context.dtype;
  }
}

}  // namespace

void name_layers(std::vector<Layer>& layers) {
  std::set<std::string, std::less<>> taken;
  for (const Layer& layer : layers) {
    if (layer.name().empty() || taken.insert(layer.name()).second) continue;
    fail<InvalidArgument>("[model] two layers are named \"", layer.name(), "\"; names are unique in a model");
  }
  std::map<std::string, int, std::less<>> used;
  for (Layer& layer : layers) {
    if (!layer.name().empty()) continue;
    const std::string base(layer.kind().base_name());
    std::string name;
    do {
      const int count = used[base]++;
      name = count == 0 ? base : base + "_" + std::to_string(count);
    } while (!taken.insert(name).second);
    layer = layer.named(name);
  }
}

SequentialModule::SequentialModule(const std::vector<Layer>& layers, BuildContext context)
    : torch::nn::Module("Sequential") {
  walk(layers, std::move(context), [&](const Layer& layer, const BuildContext& here, const Shape& /*output*/) {
    layers_.push_back(register_module(layer.name(), layer.kind().build(here)));
    makes_masks_ = makes_masks_ || layers_.back()->makes_mask();
  });
  begins_chunk_.assign(layers_.size(), "");
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    pooled_.push_back(i + 1 < layers_.size() ? pooled_before(*layers_[i], *layers_[i + 1]) : Pooled());
  }
}

SequentialModule::Pooled SequentialModule::pooled_before(LayerModule& layer, LayerModule& next) {
  auto* const convolution = dynamic_cast<ConvolutionModule*>(&layer);
  auto* const pooling = dynamic_cast<PoolingModule*>(&next);
  if (convolution == nullptr || pooling == nullptr || !pooling->takes_maximum()) return {};
  if (!convolution->activation().is_relu() && !convolution->activation().is_linear()) return {};
  return {.convolution = convolution, .pooling = pooling};
}

namespace {

// The microbatches of a pipeline are threads that go through one module at a time of their own, so that a module cannot
// keep what it has for one of them.
struct LastMask {
  const SequentialModule* of = nullptr;
  torch::Tensor mask = {};
};
thread_local LastMask last_mask;

}  // namespace

torch::Tensor SequentialModule::forward(const torch::Tensor& input, const torch::Tensor& mask) {
  if (makes_masks_ || mask.defined()) return forward_with_masks(input, mask);
  if (last_mask.of == this) last_mask = {};
  torch::Tensor x = input;
  std::size_t i = 0;
  try {
    for (; i < layers_.size(); ++i) {
      x = entering(i, x);
      x = pooled_[i].convolution == nullptr ? layers_[i]->forward(x) : forward_pooled(i, x);
    }
  } catch (const OperationRefused& error) {
    fail<Unimplemented>("[model] the layer \"", named_children()[i].key(), "\": ", error.what());
  }
  return x;
}

// The relu may come last: the largest of relus is the relu of the largest, bit for bit, so is the gradient, and there
// are only a fraction of the elements to do it for.
torch::Tensor SequentialModule::forward_pooled(std::size_t& layer, const torch::Tensor& x) {
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
torch::Tensor SequentialModule::forward_with_masks(const torch::Tensor& input, const torch::Tensor& given) {
  torch::Tensor x = input;
  torch::Tensor mask = given;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto& layer = layers_[i];
    x = entering(i, x);
    const torch::Tensor y = mask.defined() ? layer->forward_masked(x, mask) : layer->forward(x);
    mask = mask.defined() || layer->makes_mask() ? layer->mask_of(x, mask) : mask;
    x = y;
  }
  last_mask = {.of = this, .mask = mask};
  return x;
}

torch::Tensor SequentialModule::take_output_mask() {
  if (last_mask.of != this) return {};
  return std::exchange(last_mask, {}).mask;
}

void SequentialModule::leave_parts() {
  if (auto* last = dynamic_cast<LeavesParts*>(layers_.back().get())) last->leave_parts();
}

void SequentialModule::set_cut(const std::vector<std::size_t>& first) {
  begins_chunk_.assign(layers_.size(), "");
  const auto children = named_children();
  for (const std::size_t layer : first) {
    begins_chunk_[layer] = children[layer].key();
    pooled_[layer - 1] = {};  // does its own work alone
  }
}

torch::Tensor SequentialModule::entering(std::size_t layer, const torch::Tensor& x) const {
  const std::string& name = begins_chunk_[layer];
  if (name.empty()) return x;
  // PipelineOptions::cut may have the name.
  if (ReplicaScope* const call = thread_context().replica_scope) call->begins_at(name);
  return next_stage(x);
}

std::vector<torch::Tensor> SequentialModule::penalties() const {
  std::vector<torch::Tensor> list;
  for (const auto& layer : layers_) {
    const torch::Tensor cost = layer->penalty();
    if (cost.defined()) list.push_back(cost);
  }
  return list;
}

torch::Tensor SequentialModule::penalty() const {
  torch::Tensor sum;
  for (const torch::Tensor& cost : penalties()) sum = sum.defined() ? sum + cost : cost;
  return sum;
}

std::vector<Shape> output_shapes(const std::vector<Layer>& layers, BuildContext context) {
  std::vector<Shape> shapes;
  walk(layers, std::move(context),
       [&](const Layer& /*layer*/, const BuildContext& /*here*/, const Shape& output) { shapes.push_back(output); });
  return shapes;
}

}  // namespace cohort
