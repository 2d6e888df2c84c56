#include "wings/keras/train/graph_call.h"

#include <algorithm>
#include <array>

namespace cohort {

namespace {

bool is_tensor(const Json& value) {
  return value.is_object() && value.value("class_name", Json()) == "__keras_tensor__";
}

GraphValue tensor_value(const Json& tensor, const FilePlace& place) {
  return value_of_history(member(member(tensor, "config", place), "keras_history", place), place);
}

void add_masks(GraphCall& call, const Json& list, const FilePlace& here) {
  for (const Json& each : list) {
    call.masks.emplace_back();
    if (each.is_null()) continue;
    if (!is_tensor(each)) here.unsupported("the mask ", brief(each), " is not supported");
    call.masks.back() = tensor_value(each, here);
  }
}

// The arguments of MultiHeadAttention that are tensors, in their order.
constexpr std::array kHeadInputs = {"query", "value", "key"};

// Takes a tensor that was given to MultiHeadAttention by a name. Returns false: it has no such argument.
bool take_named(const std::string& key, const GraphValue& value, std::array<std::optional<GraphValue>, 3>& inputs,
                GraphCall& call) {
  if (key == "attention_mask") return call.attention_mask = value, true;
  call.masks.resize(kHeadInputs.size());
  for (std::size_t i = 0; i < kHeadInputs.size(); ++i) {
    if (key == kHeadInputs[i] && !inputs[i]) return inputs[i] = value, true;
    // Keras takes the mask of the query, whatever mask it is given.
    if (i > 0 && key == std::string(kHeadInputs[i]) + "_mask") return call.masks[i] = value, true;
  }
  return false;
}

void read_positions(GraphCall& call, const Json& arguments, bool of_operation, const FilePlace& here) {
  for (const Json& argument : arguments) {
    for (const Json& each : argument.is_array() ? argument : Json::array({argument})) {
      if (is_tensor(each)) {
        call.inputs.push_back(tensor_value(each, here));
        call.sides.emplace_back();
      } else if (of_operation && each.is_number()) {
        call.sides.emplace_back(each.get<double>());
      } else {
        here.unsupported("the argument ", brief(each), " is not supported");
      }
    }
  }
}

// Puts the inputs of MultiHeadAttention in their order.
void order_inputs(GraphCall& call, const std::array<std::optional<GraphValue>, 3>& inputs, const FilePlace& here) {
  if (!inputs[0] || !inputs[1]) here.damaged("is called without a query and a value");
  call.inputs = {*inputs[0], *inputs[1]};
  if (inputs[2]) call.inputs.push_back(*inputs[2]);
  if (call.masks.size() <= call.inputs.size()) return;
  if (call.masks[2]) here.unsupported("a key_mask without a key is not supported");
  call.masks.resize(call.inputs.size());
}

}  // namespace

bool takes_states(std::string_view class_name) {
  constexpr std::array<std::string_view, 6> kClasses = {"LSTM", "GRU",        "SimpleRNN",
                                                        "RNN",  "ConvLSTM2D", "Bidirectional"};
  return std::find(kClasses.begin(), kClasses.end(), class_name) != kClasses.end();
}

GraphValue value_of_history(const Json& history, const FilePlace& place) {
  const bool fits = history.is_array() && history.size() == 3 && history[0].is_string() &&
                    history[1].is_number_unsigned() && history[2].is_number_unsigned();
  if (!fits) place.damaged(brief(history), " is not a layer with the numbers of a call and an output");
  return {.layer = history[0], .call = history[1], .output = history[2]};
}

GraphCall read_call(const Json& node, const std::string& class_name, bool is_operation, const FilePlace& here) {
  GraphCall call;
  Json arguments = member(node, "args", here);
  if (is_operation && class_name == "GetItem") {
    if (!arguments.is_array() || arguments.size() != 2) here.damaged("wanted a tensor and a key");
    call.key = arguments[1];
    arguments.erase(1);
  }
  read_positions(call, arguments, is_operation, here);
  const bool heads = class_name == "MultiHeadAttention";
  std::array<std::optional<GraphValue>, 3> inputs;
  if (heads) {
    if (call.inputs.size() > inputs.size()) here.unsupported("more than three arguments are not supported");
    std::copy(call.inputs.begin(), call.inputs.end(), inputs.begin());
  }
  const bool attends = heads || class_name == "Attention" || class_name == "AdditiveAttention";
  for (const auto& [key, value] : member(node, "kwargs", here).items()) {
    // The model's mode takes the place of the call's, so that false says nothing.
    if (value.is_null() || (key == "training" && value == false)) continue;
    const bool is_option = attends && (key == "use_causal_mask" || key == "return_attention_scores");
    if (key == "training" && value == true) {
      call.training = true;
    } else if (is_option && value.is_boolean()) {
      if (value == true) call.options[key] = true;
    } else if (key == "initial_state" && takes_states(class_name) && (is_tensor(value) || value.is_array())) {
      read_positions(call, Json::array({value}), /*of_operation=*/false, here);
    } else if (key == "mask" && !heads && (is_tensor(value) || value.is_array())) {
      add_masks(call, value.is_array() ? value : Json::array({value}), here);
    } else if (!heads || !is_tensor(value) || !take_named(key, tensor_value(value, here), inputs, call)) {
      here.unsupported("the argument ", key, " = ", brief(value), " is not supported");
    }
  }
  if (heads) order_inputs(call, inputs, here);
  return call;
}

}  // namespace cohort
