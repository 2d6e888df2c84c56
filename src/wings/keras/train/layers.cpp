// A layer's object in config.json and the layer.
#include <algorithm>
#include <iterator>

#include "wings/keras/train/keras_class.h"
#include "wings/keras/train/values.h"

namespace cohort {

namespace {

constexpr int kMaxNested = 4;

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && std::string_view(text).substr(text.size() - end.size()) == end;
}

const KerasClass& class_named(const std::string& name, const FilePlace& place) {
  std::string known;
  for (const KerasClass& each : keras_classes()) {
    if (each.name == name) return each;
    known.append(known.empty() ? "" : ", ").append(each.name);
  }
  place.unsupported("the class ", brief(name), " is not supported; there are ", known);
}

// Takes the dtype of a layer, which has to be the others', or that of integers. Returns its policy if it computes in
// half precision, else "".
std::string take_dtype(Json& config, bool makes_integers, std::string& dtype, const FilePlace& place) {
  const Json value = config.value("dtype", Json());
  config.erase("dtype");
  if (value.is_null()) return "";
  Json name = value;
  if (value.is_object()) {
    const KerasObject policy = keras_object(value, place / "dtype");
    if (policy.class_name == "DTypePolicy") name = policy.config.value("name", Json());
  }
  if (makes_integers && (name == "int32" || name == "int64")) return "";
  std::string half;
  for (const char* const policy : {"mixed_float16", "mixed_bfloat16", "float16", "bfloat16"}) {
    if (name == policy) half = policy;
  }
  if (half.empty() && name != "float32" && name != "float64") {
    place.unsupported("dtype = ", brief(name), " is not supported");
  }
  const std::string own = half.empty() ? name.get<std::string>() : "float32";
  if (dtype.empty()) dtype = own;
  if (own != dtype) place.unsupported("dtype = ", brief(name), " differs from ", dtype, " of the layers before");
  return half;
}

// Takes out what has one value here, or no meaning.
void take_fixed(Json& config, const KerasClass& keras, const FilePlace& place) {
  for (const auto& [key, text] : keras.fixed) {
    if (!config.contains(key)) continue;
    const Json wanted = Json::parse(text);
    if (config[key] != wanted) place.unsupported(key, " = ", brief(config[key]), " is not supported, only ", text);
    config.erase(key);
  }
  for (const char* const key : keras.free) config.erase(key);
  for (auto item = config.begin(); item != config.end();) {
    const bool unset = item.value().is_null() && ends_with(item.key(), "_constraint");
    const bool activity = item.key() == "activity_regularizer";
    if (activity && !item.value().is_null()) {
      place.unsupported(item.key(), " = ", brief(item.value()), " is not supported");
    }
    item = unset || activity ? config.erase(item) : std::next(item);
  }
}

// The layer around a nested one: its policy, how many there are, and whether it is frozen.
struct Around {
  std::string policy;
  int depth = 0;
  bool is_frozen = false;
};

Layer read_nested(const Json& object, const Shape& input, std::string& dtype, const FilePlace& place,
                  const Around& around);

// Returns whether an option is a layer.
bool is_layer_option(std::string_view key) {
  return key == "layer" || key == "backward_layer" || key == "cell";
}

OptionValue option_of(const std::string& key, const Json& value, const FilePlace& place) {
  if (ends_with(key, "_initializer")) return initializer_of(value, place / key);
  if (ends_with(key, "_regularizer")) return regularizer_of(value, place / key);
  if (ends_with(key, "_constraint")) return constraint_of(value, place / key);
  if (key == "activation" || key == "recurrent_activation") return activation_of(value, place / key);
  return plain_value(value, place / key);
}

// Makes the object of an LSTM or a GRU that has other options than LibTorch's kernels an RNN of a cell.
KerasObject with_cell(KerasObject keras) {
  const bool gru = keras.class_name == "GRU";
  if (!gru && keras.class_name != "LSTM") return keras;
  const std::vector<std::pair<const char*, Json>> usual = {{"activation", "tanh"},
                                                           {"recurrent_activation", "sigmoid"},
                                                           {"dropout", 0.0},
                                                           {"recurrent_dropout", 0.0},
                                                           {"reset_after", true}};
  const bool is_usual = std::all_of(usual.begin(), usual.end(), [&](const auto& option) {
    return keras.config.value(option.first, option.second) == option.second;
  });
  if (is_usual) return keras;
  Json rnn = Json::object();
  for (const char* const key : {"name", "trainable", "dtype", "return_sequences", "return_state", "go_backwards",
                                "stateful", "unroll", "zero_output_for_mask"}) {
    if (keras.config.contains(key)) rnn[key] = keras.config[key];
    if (std::string_view(key) != "name") keras.config.erase(key);
  }
  rnn["cell"] = object_json("keras.layers", gru ? "GRUCell" : "LSTMCell", keras.config);
  return {.class_name = "RNN", .config = std::move(rnn)};
}

// Takes the place of the channels out of a layer's options.
bool takes_channels_last(Json& config, const FilePlace& place) {
  const Json format = config.value("data_format", Json("channels_last"));
  config.erase("data_format");
  if (format == "channels_last") return true;
  if (format != "channels_first") place.unsupported("data_format = ", brief(format), " is not supported");
  return false;
}

// Makes a layer whose channels come last. Softmaxes are over its own output, not over that of the layer within.
Layer make_channels_last(std::string_view type, LayerConfig options, const FilePlace& place) {
  Activation after;
  for (auto& [name, value] : options) {
    auto* const activation = std::get_if<Activation>(&value);
    if (activation != nullptr && !activation->is_elementwise()) std::swap(*activation, after);
  }
  const std::vector<Layer> inner = {make_of(type, options, place)};
  return make_of("ChannelsLast", {{"layer", inner}, {"activation", after}}, place);
}

// Returns the shape of the inputs of a layer in another one.
Shape inner_shape(std::string_view type, std::string_view key, const Shape& input) {
  const bool steps = (type == "TimeDistributed" || key == "cell") && !input.empty();
  return steps ? Shape(input.begin() + 1, input.end()) : input;
}

// Returns the shape of the output of a cell, which is the input of the next one.
Shape after_cell(const Layer& cell, const Shape& input) {
  return cell.kind().output_shape({.name = cell.name(), .input = input});
}

// Reads the layers in a layer, of which there are several in StackedRNNCells alone.
std::vector<Layer> read_inner(const Json& objects, Shape input, std::string& dtype, const FilePlace& place,
                              const Around& around) {
  if (!objects.is_array()) place.damaged("it is ", brief(objects), ", wanted a list");
  std::vector<Layer> list;
  for (const Json& object : objects) {
    list.push_back(read_nested(object, input, dtype, place, around));
    if (!list.back().trainable() && !around.is_frozen) {
      place.unsupported("it is frozen and the layer around it is not, which is not supported");
    }
    if (objects.size() > 1) input = after_cell(list.back(), input);
  }
  return list;
}

Layer read_nested(const Json& object, const Shape& input, std::string& dtype, const FilePlace& whole,
                  const Around& around) {
  if (around.depth > kMaxNested) whole.unsupported("layers in more than ", kMaxNested, " layers are not supported");
  KerasObject keras = keras_object(object, whole);
  if (!keras.config.is_object()) whole.damaged("\"config\" is ", brief(keras.config), ", wanted an object");
  keras = with_cell(std::move(keras));
  Json config = keras.config;
  const std::string name = text_member(config, "name", whole);
  const FilePlace place = whole / ("layer " + brief(name) + " (" + keras.class_name + ")");
  const KerasClass& found = class_named(keras.class_name, place);
  const Json trainable = config.value("trainable", Json(true));
  if (!trainable.is_boolean()) place.damaged("\"trainable\" is ", brief(trainable));
  config.erase("name");
  config.erase("trainable");
  const std::string policy = take_dtype(config, found.makes_integers, dtype, place);
  if (around.depth > 0 && policy != around.policy) {
    place.unsupported("another dtype than that of the layer around it is not supported");
  }
  take_fixed(config, found, place);
  if (found.read != nullptr) found.read(config, input, place);
  const bool last = found.has_format && takes_channels_last(config, place);
  LayerConfig options;
  const Around nested = {.policy = policy, .depth = around.depth + 1, .is_frozen = trainable == false};
  for (const auto& [key, value] : config.items()) {
    if (key == "cells" || (is_layer_option(key) && !value.is_null())) {
      const Json objects = key == "cells" ? value : Json::array({value});
      options.emplace_back(key, read_inner(objects, inner_shape(found.type, key, input), dtype, place / key, nested));
    } else {
      options.emplace_back(key, option_of(key, value, place));
    }
  }
  Layer layer = last ? make_channels_last(found.type, std::move(options), place) : make_of(found.type, options, place);
  try {
    layer = layer.named(name);
  } catch (const InvalidArgument& error) {
    fail<InvalidArgument>(place.text(), ": ", error.what());
  }
  layer.set_trainable(trainable.get<bool>());
  if (policy.empty() || around.depth > 0) return layer;
  return make_of("WithPolicy", {{"layer", std::vector<Layer>{layer}}, {"policy", policy}}, place);
}

}  // namespace

Layer read_layer(const Json& object, const Shape& input, std::string& dtype, const FilePlace& place) {
  return read_nested(object, input, dtype, place, {});
}

Json write_layer(const Layer& layer, const Shape& input, const std::string& dtype_of_model, const FilePlace& whole) {
  const FilePlace place = whole / ("layer \"" + layer.name() + "\" (" + std::string(layer.type()) + ")");
  const std::optional<ToldLayer> told = tell_layer(layer);
  const KerasClass* const keras = told.has_value() ? class_of_type(told->type) : nullptr;
  if (keras == nullptr) place.unsupported("Keras' files have no such layer");
  const std::string& dtype = told->policy.empty() ? dtype_of_model : told->policy;
  Json config = Json::object();
  for (const auto& [key, value] : told->config) {
    if (const auto* const layers = std::get_if<std::vector<Layer>>(&value)) {
      Shape inner = inner_shape(told->type, key, input);
      Json list = Json::array();
      for (const Layer& each : *layers) {
        list.push_back(write_layer(each.name().empty() ? each.named("inner") : each, inner, dtype, place));
        if (key == "cells") inner = after_cell(each, inner);
      }
      config[key] = key == "cells" ? list : list[0];
    } else if (is_layer_option(key)) {
      continue;  // there is none
    } else {
      config[key] = json_of(value, place / key);
    }
  }
  if (keras->has_format) config["data_format"] = told->channels_last ? "channels_last" : "channels_first";
  if (!told->after.is_linear()) config["activation"] = json_of(OptionValue(told->after), place / "activation");
  if (!layer.name().empty()) config["name"] = layer.name();
  config["trainable"] = layer.trainable();
  config["dtype"] = dtype;
  if (keras->write != nullptr) keras->write(config, input, place);
  return object_json("keras.layers", std::string(keras->name), std::move(config));
}

}  // namespace cohort
