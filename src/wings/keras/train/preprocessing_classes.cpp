// The classes that prepare features.
#include "wings/keras/train/keras_class.h"

namespace cohort {

namespace {

// Keras has a number for one axis, and null for none.
void read_normalization(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  const Json axis = config.value("axis", Json(-1));
  if (!axis.is_array()) config["axis"] = axis.is_null() ? Json::array() : Json::array({axis});
}

// Returns the number of means that are weights.
double normalization_elements(const LayerConfig& config, const Shape& input) {
  const auto rank = static_cast<int64_t>(input.size()) + 1;
  double product = 1.0;
  for (const auto& [name, value] : config) {
    if (name == "mean" && !std::holds_alternative<std::monostate>(value)) return 0.0;
    if (name != "axis") continue;
    for (const int64_t axis : std::get<std::vector<int64_t>>(value)) {
      const int64_t dim = axis < 0 ? axis + rank : axis;
      if (dim >= 1 && dim < rank) product *= static_cast<double>(input[static_cast<std::size_t>(dim - 1)]);
    }
  }
  return product;
}

// Keras keeps the weights of tf_idf in another way than all others.
void refuse_tf_idf(const Json& config, const FilePlace& place) {
  if (config.value("output_mode", Json()) == "tf_idf") place.unsupported("output_mode = tf_idf is not supported");
}

void read_integer_lookup(Json& config, const Shape& /*input*/, const FilePlace& place) {
  refuse_tf_idf(config, place);
  const Json vocabulary = config.value("vocabulary", Json());
  if (vocabulary.is_array() && !vocabulary.empty()) return;
  place.unsupported("vocabulary = ", brief(vocabulary), " is not supported, only integers");
}

void write_integer_lookup(Json& config, const Shape& /*input*/, const FilePlace& place) {
  refuse_tf_idf(config, place);
  config["vocabulary_dtype"] = "int64";
  config["sparse"] = false;
}

void read_discretization(Json& config, const Shape& /*input*/, const FilePlace& place) {
  const Json boundaries = config.value("bin_boundaries", Json());
  if (boundaries.is_array()) return;
  place.unsupported("bin_boundaries = ", brief(boundaries), " is not supported, only numbers");
}

void write_hashing(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  if (config.value("output_mode", Json()) == "int") config["dtype"] = "int64";
  config["sparse"] = false;
}

void write_discretization(Json& config, const Shape& input, const FilePlace& place) {
  write_hashing(config, input, place);
  config.erase("trainable");  // which Keras' layer does not take
}

// Keras names the directions, or both.
void read_flip(Json& config, const Shape& /*input*/, const FilePlace& place) {
  const Json mode = config.value("mode", Json("horizontal_and_vertical"));
  config.erase("mode");
  const bool both = mode == "horizontal_and_vertical";
  if (!both && mode != "horizontal" && mode != "vertical")
    place.unsupported("mode = ", brief(mode), " is not supported");
  config["horizontal"] = both || mode == "horizontal";
  config["vertical"] = both || mode == "vertical";
}

void write_flip(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  const bool horizontal = config["horizontal"] == true, vertical = config["vertical"] == true;
  config["mode"] = horizontal && vertical ? "horizontal_and_vertical" : horizontal ? "horizontal" : "vertical";
  config.erase("horizontal");
  config.erase("vertical");
}

// Keras has both distances from 1 as one option; a number is the upper one alone.
void read_contrast(Json& config, const Shape& /*input*/, const FilePlace& place) {
  const Json factor = config.value("factor", Json());
  config.erase("factor");
  const bool is_pair = factor.is_array() && factor.size() == 2 && factor[0].is_number() && factor[1].is_number();
  if (!is_pair && !factor.is_number()) place.unsupported("factor = ", brief(factor), " is not supported");
  config["lower"] = is_pair ? factor[0] : Json(0.0);
  config["upper"] = is_pair ? factor[1] : factor;
}

void write_contrast(Json& config, const Shape& /*input*/, const FilePlace& /*place*/) {
  config["factor"] = {config["lower"], config["upper"]};
  config.erase("lower");
  config.erase("upper");
}

}  // namespace

std::vector<KerasClass> random_image_classes() {
  std::vector<KerasClass> list;
  for (const char* const name :
       {"RandomRotation", "RandomTranslation", "RandomZoom", "RandomCrop", "RandomBrightness"}) {
    list.push_back({.name = name, .type = name, .has_format = true, .free = {"seed"}});
  }
  list.push_back({.name = "RandomFlip",
                  .type = "RandomFlip",
                  .has_format = true,
                  .free = {"seed"},
                  .read = read_flip,
                  .write = write_flip});
  list.push_back({.name = "RandomContrast",
                  .type = "RandomContrast",
                  .has_format = true,
                  .free = {"seed"},
                  .read = read_contrast,
                  .write = write_contrast});
  return list;
}

std::vector<KerasClass> preprocessing_classes() {
  constexpr std::pair<const char*, const char*> kDense = {"sparse", "false"};
  return {
      {.name = "Normalization",
       .type = "Normalization",
       .read = read_normalization,
       .weights = {{"", "mean"}, {"", "variance"}, {"", "count"}},
       .elements = normalization_elements},
      {.name = "CategoryEncoding", .type = "CategoryEncoding", .fixed = {kDense}},
      {.name = "Discretization",
       .type = "Discretization",
       .fixed = {kDense},
       .read = read_discretization,
       .write = write_discretization,
       .makes_integers = true},
      {.name = "IntegerLookup",
       .type = "IntegerLookup",
       .fixed = {kDense, {"vocabulary_dtype", "\"int64\""}},
       .free = {"vocabulary_size"},
       .read = read_integer_lookup,
       .write = write_integer_lookup},
      {.name = "Hashing", .type = "Hashing", .fixed = {kDense}, .write = write_hashing, .makes_integers = true},
  };
}

}  // namespace cohort
