// The rows of the core's layers, and layers by their rows.
#include "base/extension.h"
#include "cohort/train/layers/basic.h"
#include "cohort/train/layers/convolution.h"
#include "cohort/train/layers/normalization.h"
#include "cohort/train/layers/pooling.h"
#include "wings/keras/train/keras_class.h"

namespace cohort {

inline constexpr auto option_names(MovingVariance /*of*/) {
  return std::to_array<std::string_view>({"keras3", "keras2", "torch"});
}
inline constexpr auto option_names(ReplicaStatistics /*of*/) {
  return std::to_array<std::string_view>({"first", "mean"});
}

namespace {

// Returns the only option of a layer. InvalidArgument: there are others, or none.
const OptionValue& only(std::string_view type, const LayerConfig& config, std::string_view name) {
  if (config.size() == 1 && config.front().first == name) return config.front().second;
  fail<InvalidArgument>("[layers] ", type, " has the option \"", name, "\", and no other one");
}

std::vector<LayerRow> core_rows() {
  const auto nothing = [](std::monostate /*given*/) { return LayerConfig(); };
  const auto activation = [](const Activation& given) { return LayerConfig{{"activation", given}}; };
  const auto target = [](const Shape& given) { return LayerConfig{{"target_shape", given}}; };
  return {
      layer_row<DenseOptions>("Dense", Dense),
      layer_row<EmbeddingOptions>("Embedding", Embedding),
      layer_row<DropoutOptions>("Dropout", Dropout),
      layer_row<Conv2DOptions>("Conv2D", Conv2D),
      layer_row<Pooling2DOptions>("MaxPooling2D", MaxPooling2D),
      layer_row<Pooling2DOptions>("AveragePooling2D", AveragePooling2D),
      layer_row<GlobalMaxPooling2DOptions>("GlobalMaxPooling2D", GlobalMaxPooling2D),
      layer_row<GlobalAveragePooling2DOptions>("GlobalAveragePooling2D", GlobalAveragePooling2D),
      layer_row<BatchNormalizationOptions>("BatchNormalization", BatchNormalization),
      row_of<std::monostate>("Flatten", nothing,
                             [](const LayerConfig& config) {
                               if (config.empty()) return Flatten();
                               fail<InvalidArgument>("[layers] Flatten has no options");
                             }),
      row_of<Shape>("Reshape", target,
                    [](const LayerConfig& config) {
                      Shape shape;
                      set_option("target_shape", only("Reshape", config, "target_shape"), shape);
                      return Reshape(shape);
                    }),
      row_of<Activation>("Activation", activation,
                         [](const LayerConfig& config) {
                           Activation made;
                           set_option("activation", only("Activation", config, "activation"), made);
                           return Layer(made);
                         }),
  };
}

const LayerRow* row_of_type(std::string_view type) {
  static const std::vector<LayerRow> own = core_rows();
  for (const std::vector<LayerRow>* const rows : {&own, &extensions<LayerRow>()}) {
    for (const LayerRow& row : *rows) {
      if (row.type == type) return &row;
    }
  }
  return nullptr;
}

std::optional<LayerConfig> told_by(std::string_view type, const std::any& options) {
  const LayerRow* const row = row_of_type(type);
  return row == nullptr ? std::nullopt : row->tell(options);
}

}  // namespace

Layer make_of(std::string_view type, const LayerConfig& config, const FilePlace& place) {
  const LayerRow* const row = row_of_type(type);
  if (row == nullptr) place.unsupported("this build has no layer ", type, " (COHORT_WINGS)");
  try {
    return row->make(config);
  } catch (const InvalidArgument& error) {
    fail<InvalidArgument>(place.text(), ": ", error.what());
  }
}

std::optional<ToldLayer> tell_layer(const Layer& layer) {
  const std::any& options = layer.kind().options();
  if (std::optional<LayerConfig> config = told_by(layer.type(), options)) {
    return ToldLayer{.type = std::string(layer.type()), .config = *std::move(config)};
  }
  if (const std::optional<LayerConfig> half = told_by("WithPolicy", options)) {
    std::vector<Layer> inner;
    set_option("layer", half->at(0).second, inner);
    std::optional<ToldLayer> told = tell_layer(inner.front());
    if (told.has_value()) told->policy = std::get<std::string>(half->at(1).second);
    return told;
  }
  const std::optional<LayerConfig> around = told_by("ChannelsLast", options);
  if (!around.has_value()) return std::nullopt;
  std::vector<Layer> inner;
  Activation after;
  set_option("layer", around->at(0).second, inner);
  set_option("activation", around->at(1).second, after);
  std::optional<ToldLayer> told = tell_layer(inner.front());
  if (told.has_value()) {
    told->channels_last = true;
    told->after = after;
  }
  return told;
}

}  // namespace cohort
