// KerasClass: how a layer of Keras' and one of ours become each other. Layers are named, not included: wings tell of
// theirs with LayerRow.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "train/layers/layer_row.h"
#include "wings/keras/train/place.h"
#include "wings/keras/train/weight_layout.h"

namespace cohort {

struct KerasClass {
  std::string_view name;  // Keras' class
  std::string_view type;  // our sort of layer
  // It has the option data_format: the last channels are those of ChannelsLast.
  bool has_format = false;
  // Options of Keras' that have one value here, as JSON.
  std::vector<std::pair<const char*, const char*>> fixed = {};
  // Options that change no result, or only what is drawn at random.
  std::vector<const char*> free = {};
  // Makes our options of Keras', for an input of this shape.
  void (*read)(Json& config, const Shape& input, const FilePlace& place) = nullptr;
  // Makes Keras' options of ours.
  void (*write)(Json& config, const Shape& input, const FilePlace& place) = nullptr;
  std::vector<FileWeight> weights = {};  // in Keras' order
  const char* parts = nullptr;           // the option that WeightLayout's `parts` are
  // Returns the number of elements of the largest parameters, by which a layer is refused before it takes memory.
  double (*elements)(const LayerConfig& config, const Shape& input) = nullptr;
  bool makes_integers = false;  // its dtype is that of integers where it makes some
};

// Returns those of them that prepare features.
std::vector<KerasClass> preprocessing_classes();
// Returns those that change images at random.
std::vector<KerasClass> random_image_classes();
// Returns the classes that files may name.
const std::vector<KerasClass>& keras_classes();
// Returns the class of a layer of ours; null: Keras has none.
const KerasClass* class_of_type(std::string_view type);

// The options that a layer tells files.
struct ToldLayer {
  std::string type;  // our sort; that within ChannelsLast
  LayerConfig config;
  bool channels_last = false;
  Activation after = {};    // that of ChannelsLast
  std::string policy = {};  // that of WithPolicy; empty: the model's dtype
};
// Returns nothing for a layer that no file can hold.
std::optional<ToldLayer> tell_layer(const Layer& layer);

// Makes a layer of our options. NotFound: this build has none of this type. InvalidArgument: an option does not fit.
Layer make_of(std::string_view type, const LayerConfig& config, const FilePlace& place);

// Returns a whole number among options; `otherwise` where there is none.
double whole_option(const LayerConfig& config, std::string_view name, int64_t otherwise = 1);

// Makes a layer of a file, for an input of this shape. `dtype` is that of the model; "": not known yet. Sets it.
Layer read_layer(const Json& object, const Shape& input, std::string& dtype, const FilePlace& place);
// Returns the object of a layer.
Json write_layer(const Layer& layer, const Shape& input, const std::string& dtype, const FilePlace& place);

}  // namespace cohort
