// Calls of layers in the graphs of config.json.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "wings/keras/train/place.h"

namespace cohort {

// An output of a call of a layer in the file.
struct GraphValue {
  std::string layer;
  std::size_t call = 0;
  std::size_t output = 0;
  bool operator==(const GraphValue&) const = default;
  bool operator<(const GraphValue& other) const {
    return std::tie(layer, call, output) < std::tie(other.layer, other.call, other.output);
  }
};

// A call of a layer.
struct GraphCall {
  std::vector<GraphValue> inputs;
  std::vector<std::optional<GraphValue>> masks;  // those that were given with it, for the inputs in their order
  std::optional<GraphValue> attention_mask;
  // The sides of an operation: numbers; nothing where an input stands.
  std::vector<std::optional<double>> sides;
  std::optional<bool> training;
  Json options = Json::object();  // options of our layer that are arguments of the call in Keras
  Json key = nullptr;             // of GetItem
  bool done = false;
};

// Returns whether calls of a class may have initial states, which are further inputs of our layer.
bool takes_states(std::string_view class_name);

// Returns the value that a list of a layer's name and two numbers names.
GraphValue value_of_history(const Json& history, const FilePlace& place);

// Reads a call of a layer of a class, or of an operation, which has numbers among its arguments.
GraphCall read_call(const Json& node, const std::string& class_name, bool is_operation, const FilePlace& here);

}  // namespace cohort
