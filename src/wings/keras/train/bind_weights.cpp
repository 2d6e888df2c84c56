#include "wings/keras/train/bind_weights.h"

#include <algorithm>
#include <cctype>

#include "wings/keras/train/keras_class.h"

namespace cohort {

namespace {

// Returns the layer or the cell that a layer goes around; null: it goes around none.
const Layer* inner_of(const LayerConfig& config) {
  for (const auto& [name, value] : config) {
    const auto* const layers = std::get_if<std::vector<Layer>>(&value);
    if ((name == "layer" || name == "cell") && layers != nullptr && layers->size() == 1) return &layers->front();
  }
  return nullptr;
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
  if (const Layer* const inner = inner_of(config)) {
    using Places = std::vector<std::pair<std::string, std::string>>;
    const Places places = told.type == "Bidirectional"
                              ? Places{{"forward_layer", "forward"}, {"backward_layer", "backward"}}
                          : told.type == "RNN" ? Places{{"cell", "cell"}}
                                               : Places{{"layer", "layer"}};
    for (const auto& [in_file, here] : places) {
      for (BoundWeight& each :
           bound_weights(*inner, c10::str(group, "/", in_file), c10::str(name, ".", here), present)) {
        list.push_back(std::move(each));
      }
    }
    return list;
  }
  if (keras == nullptr) return list;
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
  if (const Layer* const inner = inner_of(told.config)) {
    const bool steps = (told.type == "TimeDistributed" || told.type == "RNN") && !input.empty();
    const double one = largest_weights(*inner, steps ? Shape(input.begin() + 1, input.end()) : input);
    return told.type == "Bidirectional" ? 2.0 * one : one;
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
