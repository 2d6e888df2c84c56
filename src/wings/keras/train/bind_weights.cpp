#include "wings/keras/train/bind_weights.h"

#include <algorithm>
#include <cctype>

#include "wings/keras/train/keras_class.h"

namespace cohort {

std::string class_of(const Layer& layer) {
  const std::optional<ToldLayer> told = tell_layer(layer);
  const KerasClass* const keras = told.has_value() ? class_of_type(told->type) : nullptr;
  return std::string(keras == nullptr ? layer.type() : keras->name);
}

namespace {

// A layer or a cell that a layer goes around, and what it is called there.
struct InnerLayer {
  const Layer* layer;
  std::string in_file;
  std::string here;
};

// Returns the cells of a StackedRNNCells, whose groups have the names of their classes.
std::vector<InnerLayer> cells_of(const std::vector<Layer>& cells) {
  std::vector<std::string> classes;
  for (const Layer& cell : cells) classes.push_back(class_of(cell));
  const std::vector<std::string> groups = group_names(classes);
  std::vector<InnerLayer> list;
  for (std::size_t i = 0; i < cells.size(); ++i)
    list.push_back({&cells[i], "cells/" + groups[i], c10::str("cell_", i)});
  return list;
}

const Layer* layer_option(const LayerConfig& config, std::string_view option) {
  for (const auto& [name, value] : config) {
    const auto* const layers = std::get_if<std::vector<Layer>>(&value);
    if (name == option && layers != nullptr && layers->size() == 1) return &layers->front();
  }
  return nullptr;
}

// Returns the layers that a layer goes around.
std::vector<InnerLayer> inner_of(const ToldLayer& told) {
  for (const auto& [name, value] : told.config) {
    if (name == "cells") return cells_of(std::get<std::vector<Layer>>(value));
  }
  if (const Layer* const cell = layer_option(told.config, "cell")) return {{cell, "cell", "cell"}};
  const Layer* const layer = layer_option(told.config, "layer");
  if (layer == nullptr) return {};
  if (told.type != "Bidirectional") return {{layer, "layer", "layer"}};
  const Layer* const back = layer_option(told.config, "backward_layer");
  return {{layer, "forward_layer", "forward"}, {back == nullptr ? layer : back, "backward_layer", "backward"}};
}

bool is_there(const std::map<std::string, torch::Tensor>* present, const std::string& name) {
  return present == nullptr || present->contains(name);
}

// Returns "max_pooling2d" of "MaxPooling2D", as keras.src.utils.naming does.
std::string snake_case(const std::string& name) {
  std::string text;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto is = [&](std::size_t at, int (*test)(int)) {
      return at < name.size() && test(static_cast<unsigned char>(name[at])) != 0;
    };
    const bool begins_word = is(i, std::isupper) && is(i + 1, std::islower);
    const bool after_small = is(i, std::isupper) && i > 0 && is(i - 1, std::islower);
    if (i > 0 && (begins_word || after_small)) text += '_';
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return text;
}

}  // namespace

std::vector<BoundWeight> bound_weights(const Layer& layer, const std::string& group, const std::string& name,
                                       const std::map<std::string, torch::Tensor>* present) {
  std::vector<BoundWeight> list;
  const ToldLayer told = tell_layer(layer).value_or(ToldLayer{});
  const KerasClass* const keras = class_of_type(told.type);
  const LayerConfig& config = told.config;
  for (const InnerLayer& inner : inner_of(told)) {
    for (BoundWeight& each :
         bound_weights(*inner.layer, c10::str(group, "/", inner.in_file), c10::str(name, ".", inner.here), present)) {
      list.push_back(std::move(each));
    }
  }
  if (keras == nullptr || !list.empty()) return list;
  const auto parts = keras->parts == nullptr ? 1 : static_cast<int64_t>(whole_option(config, keras->parts));
  std::map<std::string, int> counts;
  for (const FileWeight& each : keras->weights) {
    const std::string first = name + "." + each.name;
    if (!is_there(present, first)) continue;
    const std::string in_file = *each.group == '\0' ? group : group + "/" + each.group;
    list.push_back({.path = in_file + "/vars/" + std::to_string(counts[in_file]++),
                    .first = first,
                    .second = each.second != nullptr && is_there(present, name + "." + each.second)
                                  ? name + "." + each.second
                                  : "",
                    .layout = each.layout,
                    .parts = parts});
  }
  return list;
}

double largest_weights(const Layer& layer, const Shape& given) {
  const ToldLayer told = tell_layer(layer).value_or(ToldLayer{});
  Shape input = given;
  if (told.channels_last && !input.empty()) std::rotate(input.begin(), input.end() - 1, input.end());
  const std::vector<InnerLayer> inner = inner_of(told);
  if (!inner.empty()) {
    const bool steps = (told.type == "TimeDistributed" || told.type == "RNN") && !input.empty();
    double sum = 0.0;
    Shape shape = steps ? Shape(input.begin() + 1, input.end()) : input;
    for (const InnerLayer& each : inner) {
      sum += largest_weights(*each.layer, shape);
      if (told.type == "StackedRNNCells") {
        shape = each.layer->kind().output_shape({.name = each.layer->name(), .input = shape});
      }
    }
    return sum;
  }
  const KerasClass* const keras = class_of_type(told.type);
  return keras == nullptr || keras->elements == nullptr ? 0.0 : keras->elements(told.config, input);
}

std::vector<std::string> group_names(const std::vector<std::string>& classes) {
  std::map<std::string, int> counts;
  std::vector<std::string> names;
  for (const std::string& each : classes) {
    const std::string name = snake_case(each);
    const int count = counts[name]++;
    names.push_back(count == 0 ? name : name + "_" + std::to_string(count));
  }
  return names;
}

}  // namespace cohort
