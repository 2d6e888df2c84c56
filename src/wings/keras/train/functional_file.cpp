// Models that are graphs of layers, in config.json: the layers with their calls, the inputs and the outputs.
#include <algorithm>

#include "wings/keras/train/graph_call.h"
#include "wings/keras/train/keras_class.h"
#include "wings/keras/train/model_file.h"
#include "wings/keras/train/operations.h"
#include "wings/keras/train/values.h"
#include "wings/keras/train/vocabularies.h"

namespace cohort {

namespace {

struct GraphLayer {
  std::string name;
  std::string class_name;
  const Json* object = nullptr;
  bool is_operation = false;  // arithmetic, which is no layer in the model's list
  std::vector<GraphCall> calls;
  std::optional<Layer> layer;
  std::optional<ModelInFile> model;
  std::string group;
};

// Returns whether an object is one of Keras' functions of tensors.
bool is_operation(const Json& object) {
  const Json module = object.value("module", Json());
  return module.is_string() && module.get<std::string>().rfind("keras.src.ops", 0) == 0;
}

// Returns the tensors of a list of places, which is one, a list of them or a dictionary of names.
std::vector<std::pair<std::string, GraphValue>> named_values(const Json& value, const FilePlace& place) {
  std::vector<std::pair<std::string, GraphValue>> list;
  if (value.is_array() && value.size() == 3 && value[0].is_string()) {
    list.emplace_back("", value_of_history(value, place));
  } else if (value.is_structured()) {
    for (const auto& [name, each] : value.items()) {
      list.emplace_back(value.is_object() ? name : "", value_of_history(each, place));
    }
  }
  if (list.empty()) place.damaged(brief(value), " names no tensors");
  return list;
}

// Reads and makes one model.
class Graph {
 public:
  Graph(const Json& config, const FileTensors& file, std::string group, int depth, const FilePlace& place)
      : config_(config), file_(file), group_(std::move(group)), depth_(depth), place_(place) {}

  ModelInFile read() {
    read_layers();
    while (make_some()) {
    }
    std::vector<SymbolicTensor> inputs;
    for (const auto& [name, value] : named_values(member(config_, "input_layers", place_), place_ / "input_layers")) {
      if (!name.empty() && name != value.layer) {
        place_.unsupported("the input ", brief(name), " has another name than its layer ", brief(value.layer));
      }
      inputs.push_back(tensor_of(value));
    }
    std::vector<std::pair<std::string, SymbolicTensor>> outputs;
    ModelInFile made{.outputs = {}};
    const auto named = named_values(member(config_, "output_layers", place_), place_ / "output_layers");
    for (const auto& [name, value] : named) {
      made.outputs.push_back(name.empty() ? value.layer : name);
      outputs.emplace_back(named.size() == 1 ? "" : name, tensor_of(value));
    }
    const torch::ScalarType dtype = dtype_ == "float64" ? torch::kDouble : torch::kFloat;
    made.model = Functional(inputs, SymbolicOutputs(std::move(outputs)),
                            {.name = text_member(config_, "name", place_), .dtype = dtype});
    bind(made);
    return made;
  }

 private:
  void read_layers() {
    for (const auto& [key, value] : config_.items()) {
      const bool known = key == "name" || key == "layers" || key == "trainable" || key == "input_layers" ||
                         key == "output_layers" || key == "dtype";
      if (!known) place_.unsupported("the option ", key, " = ", brief(value), " is not supported");
    }
    const Json& layers = member(config_, "layers", place_);
    if (!layers.is_array()) place_.damaged("\"layers\" is ", brief(layers), ", wanted a list");
    std::vector<std::string> classes;
    for (const Json& object : layers) {
      GraphLayer layer{.name = text_member(object, "name", place_),
                       .class_name = text_member(object, "class_name", place_),
                       .object = &object,
                       .is_operation = is_operation(object)};
      const FilePlace here = place_ / ("layer " + brief(layer.name) + " (" + layer.class_name + ")");
      for (const Json& node : member(object, "inbound_nodes", here))
        layer.calls.push_back(read_call(node, layer.class_name, layer.is_operation, here));
      if (layer.class_name == "InputLayer") layer.calls.resize(1);
      if (!layer.is_operation) classes.push_back(layer.class_name);
      if (!numbers_.emplace(layer.name, layers_.size()).second) here.damaged("there are two layers of that name");
      layers_.push_back(std::move(layer));
    }
    std::size_t next = 0;
    const std::vector<std::string> groups = group_names(classes);
    for (GraphLayer& layer : layers_) {
      if (!layer.is_operation) layer.group = group_ + "layers/" + groups[next++];
    }
  }

  bool is_ready(const GraphCall& call) const {
    return std::all_of(call.inputs.begin(), call.inputs.end(),
                       [&](const GraphValue& value) { return values_.contains(value); }) &&
           std::all_of(call.masks.begin(), call.masks.end(),
                       [&](const std::optional<GraphValue>& mask) { return !mask || values_.contains(*mask); }) &&
           (!call.attention_mask || values_.contains(*call.attention_mask));
  }

  // Makes the calls whose inputs are there; false: nothing was left to be made.
  bool make_some() {
    bool progress = false;
    for (GraphLayer& layer : layers_) {
      for (std::size_t i = 0; i < layer.calls.size(); ++i) {
        GraphCall& call = layer.calls[i];
        if (call.done || !is_ready(call)) continue;
        const FilePlace here = place_ / ("layer " + brief(layer.name) + " (" + layer.class_name + ")");
        make(layer, call, i, here);
        call.done = progress = true;
      }
    }
    return progress;
  }

  void make(GraphLayer& layer, const GraphCall& call, std::size_t number, const FilePlace& here) {
    std::vector<SymbolicTensor> made;
    if (layer.class_name == "InputLayer") {
      const KerasInput input = input_of(*layer.object, place_);
      made = {Input(input.shape, {.dtype = input.dtype, .name = layer.name})};
    } else {
      if (call.inputs.empty()) here.damaged("is called on no tensor");
      std::vector<SymbolicTensor> inputs;
      for (const GraphValue& value : call.inputs) inputs.push_back(values_.at(value));
      made = layer.is_operation
                 ? std::vector{operate(layer.class_name, sides_of(call), layer.object->at("config"), call.key, here)}
                 : call_on(layer, inputs, call, here);
    }
    for (std::size_t output = 0; output < made.size(); ++output) {
      values_.emplace(GraphValue{layer.name, number, output}, made[output]);
    }
  }

  std::vector<SymbolicOperand> sides_of(const GraphCall& call) const {
    std::vector<SymbolicOperand> sides;
    auto input = call.inputs.begin();
    for (const std::optional<double>& side : call.sides) {
      sides.push_back(side ? SymbolicOperand(*side) : SymbolicOperand(values_.at(*input++)));
    }
    return sides;
  }

  std::vector<SymbolicTensor> call_on(GraphLayer& layer, const std::vector<SymbolicTensor>& inputs,
                                      const GraphCall& given, const FilePlace& here) {
    SymbolicCall call{.training = given.training};
    const auto value = [&](const std::optional<GraphValue>& mask) {
      return mask ? std::optional(values_.at(*mask)) : std::nullopt;
    };
    for (const auto& mask : given.masks) call.masks.push_back(value(mask));
    call.attention_mask = value(given.attention_mask);
    if (layer.class_name == "Functional" || layer.class_name == "Sequential") {
      if (!layer.model) layer.model = read_model(*layer.object, file_, layer.group + "/", depth_ + 1, here);
      return call_for_all(*layer.model->model, inputs, call);
    }
    const Shape& shape = inputs.front().shape();
    if (!layer.layer) {
      Json object = with_vocabulary(*layer.object, file_, layer.group, used_);
      if (!given.options.empty()) object["config"].update(given.options);
      layer.layer = read_layer(object, shape, dtype_, place_);
      if (config_.value("trainable", true) == false) layer.layer->set_trainable(false);
      require_weights(*layer.layer, shape, file_, layer.group, here);
    }
    if (given.options != layer.calls.front().options) {
      here.unsupported("calls with different arguments are not supported: ", brief(given.options), " and ",
                       brief(layer.calls.front().options));
    }
    return call_for_all(*layer.layer, inputs, call);
  }

  const SymbolicTensor& tensor_of(const GraphValue& value) const {
    const auto found = values_.find(value);
    if (found == values_.end()) {
      place_.damaged("output ", value.output, " of call ", value.call, " of the layer ", brief(value.layer),
                     " is not there, or depends on itself");
    }
    return found->second;
  }

  void bind(ModelInFile& made) const {
    made.vocabularies = used_;
    const FileTensors ours = by_name(made.model->weights());
    for (const GraphLayer& layer : layers_) {
      if (layer.model) {
        made.vocabularies.insert(made.vocabularies.end(), layer.model->vocabularies.begin(),
                                 layer.model->vocabularies.end());
        for (BoundWeight each : layer.model->weights) {
          each.first.insert(0, layer.name + ".");
          if (!each.second.empty()) each.second.insert(0, layer.name + ".");
          made.weights.push_back(std::move(each));
        }
      } else if (layer.layer) {
        for (BoundWeight& each : bound_weights(*layer.layer, layer.group, layer.name, &ours)) {
          made.weights.push_back(std::move(each));
        }
      }
    }
  }

  const Json& config_;
  const FileTensors& file_;
  std::string group_;
  int depth_;
  const FilePlace& place_;
  std::string dtype_;
  std::vector<GraphLayer> layers_;
  std::map<std::string, std::size_t> numbers_;
  std::map<GraphValue, SymbolicTensor> values_;
  std::vector<std::string> used_;  // vocabularies
};

}  // namespace

ModelInFile read_functional(const Json& config, const FileTensors& file, const std::string& group, int depth,
                            const FilePlace& place) {
  return Graph(config, file, group, depth, place).read();
}

}  // namespace cohort
