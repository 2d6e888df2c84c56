#include "wings/keras/train/option_changes.h"

#include <algorithm>

namespace cohort {

namespace {

// Takes an option out of the others; null: there is none.
Json taken(Json& config, const char* key) {
  Json value = config.value(key, Json());
  config.erase(key);
  return value;
}

// Fails unless an option, where it is given, has the value.
void require(Json& config, const char* key, const Json& wanted, const FilePlace& place) {
  if (!config.contains(key)) return;
  const Json value = taken(config, key);
  if (value != wanted) place.unsupported(key, " = ", brief(value), " is not supported, only ", brief(wanted));
}

// Returns the axes of an option, which is a number or a list; of `rank` dimensions, the batch's included.
std::vector<int64_t> axes_of(Json& config, int64_t rank, const FilePlace& place) {
  const Json value = taken(config, "axis");
  std::vector<int64_t> axes;
  for (const Json& each : value.is_array() ? value : Json::array({value})) {
    if (!each.is_number_integer()) place.unsupported("axis = ", brief(value), " is not supported");
    const auto axis = each.get<int64_t>();
    axes.push_back(axis < 0 ? axis + rank : axis);
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

}  // namespace

// The statistics and factors come from the file, whatever they began with.
void read_norm_initializers(Json& config, const Shape& /*input*/, const FilePlace& place) {
  for (const auto& [key, usual] :
       {std::pair("gamma_initializer", "Ones"), std::pair("beta_initializer", "Zeros"),
        std::pair("moving_mean_initializer", "Zeros"), std::pair("moving_variance_initializer", "Ones")}) {
    if (!config.contains(key)) continue;
    const Json value = taken(config, key);
    const Json name = value.is_object() ? value.value("class_name", Json()) : value;
    if (name != usual) place.unsupported(key, " = ", brief(value), " is not supported, only ", usual);
  }
}

void write_batch_norm(Json& config, const Shape& /*input*/, const FilePlace& place) {
  require(config, "moving_variance", "keras3", place);
  require(config, "replica_statistics", "first", place);
}

void read_layer_norm(Json& config, const Shape& input, const FilePlace& place) {
  read_norm_initializers(config, input, place);
  const auto rank = static_cast<int64_t>(input.size()) + 1;
  const std::vector<int64_t> axes = axes_of(config, rank, place);
  const auto count = static_cast<int64_t>(axes.size());
  for (int64_t i = 0; i < count; ++i) {
    if (axes[static_cast<std::size_t>(i)] != rank - count + i || rank - count + i < 1) {
      place.unsupported("the axes are not the last ones of ", rank, " dimensions, which is not supported");
    }
  }
  config["dimensions"] = count;
}

void write_layer_norm(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  const auto count = taken(config, "dimensions").get<int64_t>();
  Json axes = Json::array();
  for (int64_t axis = -count; axis < 0; ++axis) axes.push_back(axis);
  config["axis"] = count == 1 ? Json(-1) : axes;
}

void read_group_norm(Json& config, const Shape& input, const FilePlace& place) {
  read_norm_initializers(config, input, place);
  const auto rank = static_cast<int64_t>(input.size()) + 1;
  const std::vector<int64_t> axes = axes_of(config, rank, place);
  if (axes != std::vector<int64_t>{1} && axes != std::vector<int64_t>{rank - 1}) {
    place.unsupported("the axis is neither the first one nor the last one, which is not supported");
  }
  config["data_format"] = axes.front() == 1 && rank != 2 ? "channels_first" : "channels_last";
  // One dimension is both.
  if (rank == 2) config["data_format"] = "channels_first";
}

void write_group_norm(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  config["axis"] = taken(config, "data_format") == "channels_last" ? -1 : 1;
}

void read_lengths(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  for (const char* const key :
       {"kernel_size", "strides", "dilation_rate", "pool_size", "output_padding", "output_size"}) {
    if (config.contains(key) && config[key].is_array() && config[key].size() == 1) config[key] = Json(config[key][0]);
  }
}

void read_border(Json& config, const Shape& /*input*/, const FilePlace& place) {
  for (const char* const key : {"padding", "cropping"}) {
    if (!config.contains(key)) continue;
    Json sides = Json::array();
    for (const Json& pair : config[key]) {
      for (const Json& side : pair) sides.push_back(side);
    }
    if (sides.size() % 2 != 0) place.unsupported(key, " = ", brief(config[key]), " is not supported, only pairs");
    config[key] = sides;
  }
}

void write_border(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  for (const char* const key : {"padding", "cropping"}) {
    if (!config.contains(key)) continue;
    const Json sides = config[key];
    if (sides.size() == 2) continue;  // those of sequences are one pair
    Json pairs = Json::array();
    for (std::size_t i = 0; i + 1 < sides.size(); i += 2) pairs.push_back({sides[i], sides[i + 1]});
    config[key] = pairs;
  }
}

void read_channels_first(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  config["channels_first"] = taken(config, "data_format") == "channels_first";
}

void write_channels_first(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  config["data_format"] = taken(config, "channels_first") == true ? "channels_first" : "channels_last";
}

void read_bidirectional(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  if (config.value("merge_mode", Json()).is_null()) config["merge_mode"] = "none";
}

void write_bidirectional(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  if (config["merge_mode"] == "none") config["merge_mode"] = nullptr;
}

void read_dot(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  if (config.value("axes", Json()).is_number_integer()) config["axes"] = Json::array({config["axes"]});
}

void read_axes(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  if (config.value("axis", Json()).is_number_integer()) config["axis"] = Json::array({config["axis"]});
}

void write_axes(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  if (config["axis"].size() == 1) config["axis"] = Json(config["axis"][0]);
}

void write_last_only(Json& config, const Shape& input, const FilePlace& place) {
  require(config, "data_format", "channels_last", place);
  write_border(config, input, place);
}

// Keras takes no other option of all layers here.
void write_spatial_dropout(Json& config, const Shape& /*input*/, const FilePlace& place) {
  require(config, "channels_first", false, place);
  config.erase("trainable");
}

// These two are arguments of the call there, which the writer of graphs gives it.
void write_attention(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  config.erase("use_causal_mask");
  config.erase("return_attention_scores");
}

void read_heads(Json& config, const Shape& /*input*/, const FilePlace& place) {
  const Json axes = taken(config, "attention_axes");
  if (!axes.is_null() && axes != Json::array({1})) {
    place.unsupported("attention_axes = ", brief(axes), " is not supported, only [1]");
  }
  const Json output = taken(config, "output_shape");
  if (output.is_array() && output.size() == 1) config["output_dim"] = output[0];
  if (!output.is_null() && !config.contains("output_dim")) {
    place.unsupported("output_shape = ", brief(output), " is not supported, only one size");
  }
  if (config.value("value_dim", Json()).is_null()) config.erase("value_dim");
  config["masks"] = "keras3";
}

void write_heads(Json& config, const Shape& input, const FilePlace& place) {
  write_attention(config, input, place);
  config.erase("masks");  // write_model.cpp has seen to it
  const Json output = taken(config, "output_dim");
  config["output_shape"] = output == 0 ? Json() : Json::array({output});
  if (config["value_dim"] == 0) config["value_dim"] = config["key_dim"];
  config["attention_axes"] = Json::array({1});
}

void read_softmax(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  config["activation"] = "softmax";
}

void read_elu(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  config["activation"] = "elu";
}

void read_identity(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  config["activation"] = "linear";
}

// Keras would put channels that come first behind the others.
void write_flatten(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  config["data_format"] = "channels_last";
}

}  // namespace cohort
