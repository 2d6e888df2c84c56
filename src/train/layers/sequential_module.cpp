#include "train/layers/sequential_module.h"

#include <map>
#include <set>

#include "base/fail.h"

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
    : torch::nn::Module("Sequential"), chain_(make_chain(layers, std::move(context))) {
  for (std::size_t i = 0; i < chain_.layers().size(); ++i) register_module(chain_.names()[i], chain_.layers()[i]);
}

LayerChain SequentialModule::make_chain(const std::vector<Layer>& layers, BuildContext context) {
  std::vector<std::string> names;
  std::vector<std::shared_ptr<LayerModule>> modules;
  walk(layers, std::move(context), [&](const Layer& layer, const BuildContext& here, const Shape& /*output*/) {
    names.push_back(layer.name());
    modules.push_back(layer.kind().build(here));
  });
  return {std::move(names), std::move(modules)};
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
  if (chain_.makes_masks() || mask.defined()) {
    torch::Tensor own = mask;
    torch::Tensor output = chain_.forward(input, own);
    last_mask = {.of = this, .mask = std::move(own)};
    return output;
  }
  if (last_mask.of == this) last_mask = {};
  return chain_.forward(input);
}

torch::Tensor SequentialModule::take_output_mask() {
  if (last_mask.of != this) return {};
  return std::exchange(last_mask, {}).mask;
}

void SequentialModule::leave_parts() {
  if (auto* last = dynamic_cast<LeavesParts*>(layers().back().get())) last->leave_parts();
}

std::vector<PlacedLayer> SequentialModule::places() const {
  std::vector<PlacedLayer> list;
  for (std::size_t i = 0; i < layers().size(); ++i) list.push_back({.name = chain_.names()[i], .layer = layers()[i]});
  return list;
}

void SequentialModule::visit(const std::vector<torch::Tensor>& inputs, const LayerVisitor& visitor) {
  std::vector<torch::Tensor> values = inputs;
  for (std::size_t i = 0; i < layers().size(); ++i) {
    values = visitor(i, values, [&](const std::vector<torch::Tensor>& x) {
      return std::vector<torch::Tensor>{layers()[i]->forward(x.front())};
    });
  }
}

void SequentialModule::begin_chunks(const std::vector<std::size_t>& places) {
  for (const std::size_t layer : places) chain_.begin_chunk(layer);
}

std::vector<torch::Tensor> SequentialModule::penalties() const {
  std::vector<torch::Tensor> list;
  for (const auto& layer : layers()) {
    const torch::Tensor cost = layer->penalty();
    if (cost.defined()) list.push_back(cost);
  }
  return list;
}

std::vector<Shape> output_shapes(const std::vector<Layer>& layers, BuildContext context) {
  std::vector<Shape> shapes;
  walk(layers, std::move(context),
       [&](const Layer& /*layer*/, const BuildContext& /*here*/, const Shape& output) { shapes.push_back(output); });
  return shapes;
}

}  // namespace cohort
