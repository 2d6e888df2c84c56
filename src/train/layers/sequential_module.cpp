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
    : torch::nn::Module("Sequential") {
  walk(layers, std::move(context), [&](const Layer& layer, const BuildContext& here, const Shape& /*output*/) {
    layers_.push_back(register_module(layer.name(), layer.kind().build(here)));
  });
}

std::vector<Shape> output_shapes(const std::vector<Layer>& layers, BuildContext context) {
  std::vector<Shape> shapes;
  walk(layers, std::move(context),
       [&](const Layer& /*layer*/, const BuildContext& /*here*/, const Shape& output) { shapes.push_back(output); });
  return shapes;
}

}  // namespace cohort
