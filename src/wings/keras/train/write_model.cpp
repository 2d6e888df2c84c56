// A Sequential and a Functional as Keras writes them: layers with their options and, of a graph, their calls.
#include "wings/keras/train/write_model.h"

#include "wings/functional/train/functional_module.h"
#include "wings/keras/train/graph_call.h"
#include "wings/keras/train/keras_class.h"
#include "wings/keras/train/values.h"

namespace cohort {

namespace {

Json batch_shape(const Shape& shape) {
  Json sizes = Json::array({nullptr});
  for (const int64_t size : shape) sizes.push_back(size < 0 ? Json() : Json(size));
  return sizes;
}

std::string dtype_name(torch::ScalarType dtype, const FilePlace& place) {
  if (dtype == torch::kFloat) return "float32";
  if (dtype == torch::kDouble) return "float64";
  if (dtype == torch::kLong) return "int64";
  if (dtype == torch::kInt) return "int32";
  if (dtype == torch::kByte) return "uint8";
  if (dtype == torch::kBool) return "bool";
  place.unsupported("the dtype ", dtype, " is not supported");
}

Json input_layer(const std::string& name, const Shape& shape, torch::ScalarType dtype, const FilePlace& place) {
  return object_json("keras.layers", "InputLayer",
                     {{"batch_shape", batch_shape(shape)},
                      {"dtype", dtype_name(dtype, place)},
                      {"sparse", false},
                      {"ragged", false},
                      {"name", name}});
}

std::map<std::string, torch::Tensor> present_weights(const ModelState& state) {
  std::map<std::string, torch::Tensor> list;
  const torch::nn::Module& module = *state.module().copies().front();
  for (const auto& item : module.named_parameters()) list[item.key()] = item.value();
  for (const auto& item : module.named_buffers()) list[item.key()] = item.value();
  return list;
}

const ModelKind* model_in(const Layer& layer) {
  return dynamic_cast<const ModelKind*>(&layer.kind());
}

bool is_operation(const Layer& layer) {
  return dynamic_cast<const OperationKind*>(&layer.kind()) != nullptr;
}

// Returns the layers of a model that have groups in a file, with their classes.
std::vector<std::pair<Layer, std::string>> layers_with_groups(const ModelState& state) {
  std::vector<std::pair<Layer, std::string>> list;
  for (const Layer& layer : state.layers()) list.emplace_back(layer, class_of(layer));
  const auto* const graph = dynamic_cast<const FunctionalModule*>(state.module().copies().front().get());
  if (graph == nullptr) return list;
  for (const FunctionalPlan::Planned& planned : graph->plan().layers) {
    if (is_operation(planned.layer)) continue;
    const ModelKind* const model = model_in(planned.layer);
    list.emplace_back(planned.layer, planned.node == nullptr ? "InputLayer"
                                     : model != nullptr      ? std::string(model->type())
                                                             : class_of(planned.layer));
  }
  return list;
}

WrittenModel write_sequential(const ModelState& state, const FilePlace& place) {
  const BuildContext& built = state.built_for();
  const std::string dtype = dtype_name(built.dtype, place);
  std::vector<Layer> layers = state.layers();
  Json list = Json::array({input_layer("input_layer", built.input, built.input_dtype, place)});
  Shape shape = built.input;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].type() == "MultiHeadAttention") {
      place.unsupported("a Sequential of Keras' does not call a MultiHeadAttention; use a Functional");
    }
    layers[i].set_trainable(state.entries()[i].trainable);
    list.push_back(write_layer(layers[i], shape, dtype, place));
    shape = state.entries()[i].output.value();
  }
  return {.object = object_json("keras", "Sequential",
                                {{"name", state.name()},
                                 {"trainable", true},
                                 {"dtype", dtype},
                                 {"layers", std::move(list)},
                                 {"build_input_shape", batch_shape(built.input)}}),
          .outputs = {""}};
}

// Returns the key of GetItem: whole slices, and behind them the item of its dimension.
Json key_json(const ItemOptions& item) {
  const auto slice = [](const Json& begin, const Json& end, const Json& step) {
    return Json{{"class_name", "__slice__"}, {"config", {{"start", begin}, {"stop", end}, {"step", step}}}};
  };
  Json key = Json::array();
  for (int64_t dim = 0; dim < item.dim; ++dim) key.push_back(slice(nullptr, nullptr, nullptr));
  key.push_back(item.index ? Json(*item.index) : slice(item.begin, item.end ? Json(*item.end) : Json(), item.step));
  return key;
}

// Writes one graph.
class GraphWriter {
 public:
  GraphWriter(const ModelState& state, const FilePlace& place)
      : state_(state),
        plan_(dynamic_cast<const FunctionalModule&>(*state.module().copies().front()).plan()),
        place_(place),
        dtype_(dtype_name(state.dtype(), place)) {}

  WrittenModel write() {
    note_values();
    Json list = Json::array();
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
      list.push_back(is_operation(plan_.layers[i].layer) ? write_operation(i) : write_planned(i));
    }
    Json inputs = Json::array();
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i) inputs.push_back(history(i));
    written_.object = object_json("keras.src.models.functional", "Functional",
                                  {{"name", state_.name()},
                                   {"trainable", true},
                                   {"layers", std::move(list)},
                                   {"input_layers", std::move(inputs)},
                                   {"output_layers", outputs()}});
    written_.object["registered_name"] = "Functional";
    return std::move(written_);
  }

 private:
  // A value's layer, the number of the call among the layer's, and the number of the output.
  struct Place {
    std::string layer;
    std::size_t call = 0;
    std::size_t output = 0;
    const Shape* shape = nullptr;
    torch::ScalarType dtype = torch::kFloat;
  };

  void note_values() {
    values_.resize(plan_.values);
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
      values_[i] = {.layer = plan_.layers[plan_.input_layers[i]].layer.name(),
                    .shape = &plan_.inputs[i].shape(),
                    .dtype = input_dtype(i)};
    }
    for (const FunctionalPlan::Planned& layer : plan_.layers) {
      for (std::size_t n = 0; n < layer.calls.size(); ++n) {
        const FunctionalPlan::Call& call = plan_.calls[layer.calls[n]];
        for (std::size_t output = 0; output < call.node->shapes.size(); ++output) {
          values_[call.first + output] = {.layer = layer.layer.name(),
                                          .call = n,
                                          .output = output,
                                          .shape = &call.node->shapes[output],
                                          .dtype = call.node->dtype == torch::kBool ? torch::kBool : state_.dtype()};
        }
      }
    }
  }

  torch::ScalarType input_dtype(std::size_t input) const {
    const torch::ScalarType dtype = plan_.inputs[input].dtype();
    return at::isFloatingType(dtype) ? state_.dtype() : dtype;
  }

  Json history(std::size_t value) const { return {values_[value].layer, values_[value].call, values_[value].output}; }

  Json tensor(std::size_t value) const {
    const Place& place = values_[value];
    return {{"class_name", "__keras_tensor__"},
            {"config",
             {{"shape", batch_shape(*place.shape)},
              {"dtype", dtype_name(place.dtype, place_)},
              {"keras_history", history(value)}}}};
  }

  // Gives the masks of MultiHeadAttention their names, for so many inputs.
  void name_masks(Json& named, const Json& masks, std::size_t inputs) const {
    const std::array names = {"query_mask", "value_mask", "key_mask"};
    for (std::size_t i = 0; i < masks.size(); ++i) {
      if (masks[i].is_null()) continue;
      if (i == 0) place_.unsupported("the mask of the query of MultiHeadAttention has no place in Keras' files");
      named[i == inputs ? "attention_mask" : names.at(i)] = masks[i];
    }
  }

  Json node(const FunctionalPlan::Call& call) const {
    const std::size_t count = call.node->tensors();
    Json inputs = Json::array(), masks = Json::array();
    for (std::size_t i = 0; i < count; ++i) inputs.push_back(tensor(call.inputs[i]));
    for (std::size_t i = count; i < call.inputs.size(); ++i)
      masks[call.node->masked[i - count]] = tensor(call.inputs[i]);
    Json named = Json::object();
    const Layer& layer = plan_.layers[call.layer].layer;
    const bool heads = layer.type() == "MultiHeadAttention", states = count > 1 && takes_states(layer.type());
    if (heads) {
      name_masks(named, masks, count);
    } else if (!masks.empty()) {
      named["mask"] = count == 1 || states ? masks[0] : masks;
    }
    for (const char* const option : {"use_causal_mask", "return_attention_scores"}) {
      const std::optional<ToldLayer> told = tell_layer(layer);
      if (told.has_value() && whole_option(told->config, option, 0) != 0) named[option] = true;
    }
    if (call.node->training) named["training"] = *call.node->training;
    if (states) {
      named["initial_state"] = Json(inputs.begin() + 1, inputs.end());
      inputs = Json::array({inputs[0]});
    }
    Json arguments = count == 1 || heads || states ? inputs : Json::array({inputs});
    if (heads && count == 1) arguments.push_back(inputs[0]);
    return {{"args", std::move(arguments)}, {"kwargs", std::move(named)}};
  }

  Json write_planned(std::size_t index) const {
    const FunctionalPlan::Planned& planned = plan_.layers[index];
    const std::string& name = planned.layer.name();
    const bool trainable = state_.entries()[index].trainable;
    Json object;
    if (planned.node == nullptr) {
      object = write_input(index);
    } else if (const ModelKind* const kind = model_in(planned.layer)) {
      object = write_model(kind->model(), place_ / ("the model \"" + name + "\"")).object;
      object["config"]["name"] = name;
      object["config"]["trainable"] = trainable;
    } else {
      Layer layer = planned.layer;
      layer.set_trainable(trainable);
      const std::size_t input = plan_.calls[planned.calls.front()].inputs.front();
      object = write_layer(layer, *values_[input].shape, dtype_, place_);
    }
    object["name"] = name;
    object["inbound_nodes"] = Json::array();
    for (const std::size_t call : planned.calls) object["inbound_nodes"].push_back(node(plan_.calls[call]));
    return object;
  }

  // Arithmetic is a function of Keras', whose numbers are arguments.
  Json write_operation(std::size_t index) const {
    const Layer& layer = plan_.layers[index].layer;
    const std::any& options = layer.kind().options();
    const auto* const axis = std::any_cast<AxisOptions>(&options);
    const auto* const item = std::any_cast<ItemOptions>(&options);
    const OperationSides tensor_alone(1);
    const auto* const given = std::any_cast<OperationSides>(&options);
    const OperationSides& sides = given == nullptr ? tensor_alone : *given;
    if (axis == nullptr && item == nullptr && given == nullptr) {
      place_.unsupported("the operation \"", layer.name(), "\" (", layer.type(), ") is not supported");
    }
    const std::string name(layer.type() == "Divide" ? "TrueDivide" : layer.type());
    const bool is_activation = name == "Relu" || name == "Silu" || name == "Sigmoid";
    Json object =
        object_json(is_activation ? "keras.src.ops.nn" : "keras.src.ops.numpy", name, {{"name", layer.name()}});
    if (axis != nullptr) object["config"].update({{"axis", axis->axis}, {"keepdims", axis->keepdims}});
    object["name"] = layer.name();
    object["inbound_nodes"] = Json::array();
    for (const std::size_t number : plan_.layers[index].calls) {
      auto input = plan_.calls[number].inputs.begin();
      Json arguments = Json::array();
      for (const std::optional<double>& side : sides) arguments.push_back(side ? Json(*side) : tensor(*input++));
      if (item != nullptr) arguments.push_back(key_json(*item));
      object["inbound_nodes"].push_back({{"args", std::move(arguments)}, {"kwargs", Json::object()}});
    }
    return object;
  }

  Json write_input(std::size_t layer) const {
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
      if (plan_.input_layers[i] != layer) continue;
      return input_layer(values_[i].layer, plan_.inputs[i].shape(), input_dtype(i), place_);
    }
    place_.unsupported("the layer \"", plan_.layers[layer].layer.name(), "\" is neither called nor an input");
  }

  // A dictionary where the outputs were given names, or else a list.
  Json outputs() {
    Json list = Json::array(), named = Json::object();
    for (std::size_t i = 0; i < plan_.outputs.size(); ++i) {
      const std::string& name = plan_.outputs[i].first;
      written_.outputs.push_back(name.empty() ? values_[plan_.output_values[i]].layer : name);
      list.push_back(history(plan_.output_values[i]));
      named[written_.outputs.back()] = list.back();
    }
    return plan_.gave_names && plan_.outputs.size() > 1 ? named : list;
  }

  const ModelState& state_;
  const FunctionalPlan& plan_;
  const FilePlace& place_;
  std::string dtype_;
  std::vector<Place> values_;
  WrittenModel written_;
};

}  // namespace

namespace {

// Calls visit with each layer of a model, and of the models in it.
template <typename Visit>
void each_layer(const ModelState& state, const Visit& visit) {
  for (const auto& [layer, name] : layers_with_groups(state)) {
    const ModelKind* const model = model_in(layer);
    model == nullptr ? visit(layer) : each_layer(model->model(), visit);
  }
}

// Returns whether a model makes masks of its own.
bool makes_masks(const ModelState& state) {
  bool made = false;
  each_layer(state, [&](const Layer& layer) {
    const ToldLayer told = tell_layer(layer).value_or(ToldLayer{});
    made = made || told.type == "Masking" || whole_option(told.config, "mask_zero", 0) != 0;
  });
  const auto* const graph = dynamic_cast<const FunctionalModule*>(state.module().copies().front().get());
  if (graph == nullptr) return made;
  for (const FunctionalPlan::Call& call : graph->plan().calls) made = made || !call.node->masked.empty();
  return made;
}

}  // namespace

void require_masks_of_keras(const ModelState& state, const FilePlace& place) {
  if (!makes_masks(state)) return;
  each_layer(state, [&](const Layer& layer) {
    const ToldLayer told = tell_layer(layer).value_or(ToldLayer{});
    if (told.type != "MultiHeadAttention") return;
    for (const auto& [name, value] : told.config) {
      const auto* const masks = std::get_if<std::string>(&value);
      if (name != "masks" || masks == nullptr || *masks == "keras3") continue;
      place.unsupported("the masks of the layer \"", layer.name(),
                        "\" (MultiHeadAttention) are not Keras'; with the option masks = kKeras3 they are");
    }
  });
}

WrittenModel write_model(const ModelState& state, const FilePlace& place) {
  if (!state.layers().empty()) return write_sequential(state, place);
  if (dynamic_cast<const FunctionalModule*>(state.module().copies().front().get()) != nullptr) {
    return GraphWriter(state, place).write();
  }
  place.unsupported("the model is a module of the program's; Keras' files hold layers");
}

std::vector<BoundWeight> bind_model(const ModelState& state, const std::string& group) {
  const std::map<std::string, torch::Tensor> present = present_weights(state);
  const std::vector<std::pair<Layer, std::string>> layers = layers_with_groups(state);
  std::vector<std::string> classes;
  for (const auto& [layer, name] : layers) classes.push_back(name);
  const std::vector<std::string> groups = group_names(classes);
  std::vector<BoundWeight> all;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i].first;
    const std::string own = group + "layers/" + groups[i];
    const ModelKind* const model = model_in(layer);
    for (BoundWeight& each :
         model != nullptr ? bind_model(model->model(), own + "/") : bound_weights(layer, own, layer.name(), &present)) {
      if (model != nullptr) each.first.insert(0, layer.name() + ".");
      if (model != nullptr && !each.second.empty()) each.second.insert(0, layer.name() + ".");
      all.push_back(std::move(each));
    }
  }
  return all;
}

}  // namespace cohort
