#include "wings/functional/train/symbolic.h"

#include "base/access.h"
#include "train/layers/support.h"
#include "train/model/model_state.h"

namespace cohort {

namespace {

// The module of an Input, which gives a model's list of layers its row.
class InputModule final : public LayerModule {
 public:
  torch::Tensor forward(const torch::Tensor& x) override { return x; }
};

SymbolicTensor only(std::vector<SymbolicTensor> outputs, const std::string& who) {
  if (outputs.size() == 1) return outputs.front();
  fail<InvalidArgument>("[model] ", who, ": it has ", outputs.size(), " outputs: call it by call_for_all()");
}

SymbolicCall call_of(const std::optional<CallOptions>& options) {
  return {.training = options ? std::optional<bool>(options->training) : std::nullopt};
}

// Notes a call of a layer or a model.
std::vector<SymbolicTensor> note_call_with(detail::SymbolicNode node, const SymbolicCall& call) {
  if (call.masks.size() > node.inputs.size()) {
    fail<InvalidArgument>("[model] ", name_of(node.layer), ": called with ", call.masks.size(), " masks for ",
                          node.inputs.size(), " tensors");
  }
  node.training = call.training;
  for (std::size_t i = 0; i < call.masks.size(); ++i) {
    if (!call.masks[i]) continue;
    node.inputs.push_back(*call.masks[i]);
    node.masked.push_back(i);
  }
  if (call.attention_mask) {
    const auto* const graph = dynamic_cast<const GraphLayerKind*>(&node.layer.kind());
    if (graph == nullptr || !graph->takes_attention_mask()) {
      fail<InvalidArgument>("[model] ", name_of(node.layer), " (", node.layer.type(), "): takes no attention_mask");
    }
    node.masked.push_back(node.tensors());
    node.inputs.push_back(*call.attention_mask);
  }
  return note_call(std::move(node));
}

void require_inputs(const std::string& who, const std::vector<SymbolicTensor>& inputs) {
  if (inputs.empty()) fail<InvalidArgument>("[model] ", who, ": called without a tensor");
}

}  // namespace

std::string name_of(const Layer& layer) {
  return layer.name().empty() ? std::string(layer.kind().base_name()) : layer.name();
}

std::vector<Shape> shapes_of(const std::vector<SymbolicTensor>& tensors) {
  std::vector<Shape> shapes;
  for (const SymbolicTensor& each : tensors) shapes.push_back(each.shape());
  return shapes;
}

const Shape& SymbolicTensor::shape() const {
  return node_->shapes[output_];
}

torch::ScalarType SymbolicTensor::dtype() const {
  return node_->dtype;
}

std::shared_ptr<LayerModule> InputKind::build(const BuildContext& /*context*/) const {
  return std::make_shared<InputModule>();
}

std::vector<SymbolicTensor> note_call(detail::SymbolicNode node) {
  const auto shared = std::make_shared<const detail::SymbolicNode>(std::move(node));
  std::vector<SymbolicTensor> outputs;
  for (std::size_t i = 0; i < shared->shapes.size(); ++i) outputs.emplace_back(shared, i);
  return outputs;
}

SymbolicTensor Input(const Shape& shape, const InputTensorOptions& options) {
  for (const int64_t size : shape) {
    if (size < -1)
      fail<InvalidArgument>("[model] Input: the shape is ", to_text(shape), ", wanted sizes, or -1 for any");
  }
  Layer layer(std::make_shared<InputKind>(shape, options.dtype), options.name);
  const void* const key = layer.instance().get();
  return note_call({.layer = std::move(layer), .key = key, .shapes = {shape}, .dtype = options.dtype}).front();
}

std::vector<SymbolicTensor> call_for_all(const Layer& layer, const std::vector<SymbolicTensor>& inputs,
                                         std::optional<CallOptions> options) {
  return call_for_all(layer, inputs, call_of(options));
}

std::vector<SymbolicTensor> call_for_all(const Layer& layer, const std::vector<SymbolicTensor>& inputs,
                                         const SymbolicCall& call) {
  const std::string name = name_of(layer);
  require_inputs(name, inputs);
  const BuildContext context{.name = name, .input = inputs.front().shape(), .input_dtype = inputs.front().dtype()};
  std::vector<Shape> shapes;
  if (const auto* graph = dynamic_cast<const GraphLayerKind*>(&layer.kind())) {
    shapes = graph->output_shapes(context, shapes_of(inputs));
  } else if (inputs.size() == 1) {
    shapes = {layer.kind().output_shape(context)};
  } else {
    fail<InvalidArgument>("[model] ", name, " (", layer.type(), "): called with ", inputs.size(),
                          " tensors, but it takes one");
  }
  return note_call_with({.layer = layer, .key = layer.instance().get(), .inputs = inputs, .shapes = std::move(shapes)},
                        call);
}

SymbolicTensor call_layer(const Layer& layer, const SymbolicTensor& x) {
  return only(call_for_all(layer, {x}), name_of(layer));
}

SymbolicTensor call_layer(const Layer& layer, const SymbolicTensor& x, const CallOptions& options) {
  return only(call_for_all(layer, {x}, options), name_of(layer));
}

SymbolicTensor call_layer(const Layer& layer, const std::vector<SymbolicTensor>& inputs) {
  return only(call_for_all(layer, inputs), name_of(layer));
}

SymbolicTensor call_layer(const Layer& layer, const std::vector<SymbolicTensor>& inputs, const CallOptions& options) {
  return only(call_for_all(layer, inputs, options), name_of(layer));
}

SymbolicTensor call_layer(const Layer& layer, const SymbolicTensor& x, const SymbolicCall& call) {
  return only(call_for_all(layer, {x}, call), name_of(layer));
}

SymbolicTensor call_layer(const Layer& layer, const std::vector<SymbolicTensor>& inputs, const SymbolicCall& call) {
  return only(call_for_all(layer, inputs, call), name_of(layer));
}

std::vector<SymbolicTensor> call_for_all(const Model& model, const std::vector<SymbolicTensor>& inputs,
                                         std::optional<CallOptions> options) {
  return call_for_all(model, inputs, call_of(options));
}

std::vector<SymbolicTensor> call_for_all(const Model& model, const std::vector<SymbolicTensor>& inputs,
                                         const SymbolicCall& call) {
  require_inputs(model.name(), inputs);
  const std::shared_ptr<ModelState>& state = Access::state(model);
  const auto kind = std::make_shared<ModelKind>(state);
  std::vector<Shape> shapes = kind->output_shapes(inputs);
  return note_call_with(
      {.layer = Layer(kind, model.name()), .key = state.get(), .inputs = inputs, .shapes = std::move(shapes)}, call);
}

SymbolicTensor call_model(const Model& model, const SymbolicTensor& x) {
  return only(call_for_all(model, {x}), model.name());
}

SymbolicTensor call_model(const Model& model, const SymbolicTensor& x, const CallOptions& options) {
  return only(call_for_all(model, {x}, options), model.name());
}

SymbolicOutputs::SymbolicOutputs(const std::vector<SymbolicTensor>& list) {
  for (const SymbolicTensor& each : list) list_.emplace_back("", each);
}

}  // namespace cohort
