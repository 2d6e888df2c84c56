// Sequential models in config.json.
#include "wings/keras/train/keras_class.h"
#include "wings/keras/train/model_file.h"
#include "wings/keras/train/vocabularies.h"

namespace cohort {

namespace {

constexpr int kMaxModels = 8;

// Returns the shape of an example in "batch_shape"; -1 where a size is not known.
Shape example_shape(const Json& batch_shape, const FilePlace& place) {
  if (!batch_shape.is_array() || batch_shape.empty() || !batch_shape.front().is_null()) {
    place.unsupported("the shape ", brief(batch_shape), " is not supported, only [null, ...]");
  }
  Shape shape;
  for (std::size_t i = 1; i < batch_shape.size(); ++i) {
    const Json& size = batch_shape[i];
    const bool fits = size.is_null() || (size.is_number_integer() && size.get<int64_t>() > 0);
    if (!fits) place.unsupported("the shape ", brief(batch_shape), " is not supported");
    shape.push_back(size.is_null() ? -1 : size.get<int64_t>());
  }
  return shape;
}

double elements_under(const FileTensors& file, const std::string& group) {
  double sum = 0.0;
  for (auto item = file.lower_bound(group + "/"); item != file.end() && item->first.rfind(group + "/", 0) == 0;
       ++item) {
    sum += static_cast<double>(item->second.numel());
  }
  return sum;
}

ModelInFile read_sequential(const Json& config, const FileTensors& file, const std::string& group,
                            const FilePlace& place) {
  const Json& objects = member(config, "layers", place);
  if (!objects.is_array()) place.damaged("\"layers\" is ", brief(objects), ", wanted a list");
  for (const auto& [key, value] : config.items()) {
    const bool known =
        key == "name" || key == "layers" || key == "trainable" || key == "dtype" || key == "build_input_shape";
    if (!known) place.unsupported("the option ", key, " = ", brief(value), " is not supported");
  }
  const bool has_input = !objects.empty() && text_member(objects.front(), "class_name", place) == "InputLayer";
  KerasInput input;
  if (has_input) {
    input = input_of(objects.front(), place);
  } else {
    input.shape = example_shape(config.value("build_input_shape", Json()), place / "build_input_shape");
  }
  std::vector<std::string> classes;
  for (std::size_t i = has_input ? 1 : 0; i < objects.size(); ++i) {
    classes.push_back(text_member(objects[i], "class_name", place));
  }
  const std::vector<std::string> groups = group_names(classes);
  std::string dtype;
  std::vector<Layer> layers;
  std::vector<std::string> used;
  Shape shape = input.shape;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string own = group + "layers/" + groups[i];
    Layer layer = read_layer(with_vocabulary(objects[has_input ? i + 1 : i], file, own, used), shape, dtype, place);
    if (config.value("trainable", true) == false) layer.set_trainable(false);
    require_weights(layer, shape, file, own, place);
    BuildContext context{.name = layer.name(), .input = shape};
    if (i == 0) context.input_dtype = input.dtype;
    shape = layer.kind().output_shape(context);
    layers.push_back(std::move(layer));
  }
  const torch::ScalarType parameters = dtype == "float64" ? torch::kDouble : torch::kFloat;
  Sequential model(layers, {.name = text_member(config, "name", place), .dtype = parameters});
  model.build(input.shape, input.dtype == torch::kLong ? torch::kLong : parameters);
  ModelInFile made{.model = model, .vocabularies = std::move(used)};
  const FileTensors ours = by_name(model.weights());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (BoundWeight& each : bound_weights(layers[i], group + "layers/" + groups[i], layers[i].name(), &ours)) {
      made.weights.push_back(std::move(each));
    }
  }
  return made;
}

}  // namespace

FileTensors by_name(const NamedTensors& list) {
  FileTensors map;
  for (const auto& [name, tensor] : list) map[name] = tensor;
  return map;
}

KerasInput input_of(const Json& layer, const FilePlace& whole) {
  const FilePlace place = whole / "InputLayer";
  Json config = keras_object(layer, place).config;
  KerasInput input{.shape = example_shape(member(config, "batch_shape", place), place)};
  const std::string dtype = config.value("dtype", "float32");
  const bool whole_numbers = dtype.rfind("int", 0) == 0 || dtype.rfind("uint", 0) == 0;
  if (whole_numbers) input.dtype = torch::kLong;
  if (!whole_numbers && dtype.rfind("float", 0) != 0) place.unsupported("dtype = ", brief(dtype), " is not supported");
  for (const char* const key : {"batch_shape", "dtype", "name", "trainable"}) config.erase(key);
  for (const auto& [key, value] : config.items()) {
    if (value != false && !value.is_null()) place.unsupported(key, " = ", brief(value), " is not supported");
  }
  return input;
}

void require_weights(const Layer& layer, const Shape& input, const FileTensors& file, const std::string& group,
                     const FilePlace& place) {
  const double wanted = largest_weights(layer, input);
  const double there = elements_under(file, group);
  if (wanted <= there) return;
  (place / ("layer \"" + layer.name() + "\" (" + std::string(layer.type()) + ")"))
      .damaged("its options ask for ", wanted, " weights or more, the file has ", there);
}

ModelInFile read_model(const Json& object, const FileTensors& file, const std::string& group, int depth,
                       const FilePlace& place) {
  if (depth > kMaxModels) place.unsupported("models in more than ", kMaxModels, " models are not supported");
  const KerasObject keras = keras_object(object, place);
  if (keras.class_name == "Sequential") return read_sequential(keras.config, file, group, place);
  if (keras.class_name == "Functional") return read_functional(keras.config, file, group, depth, place);
  place.unsupported("a model of the class ", brief(keras.class_name),
                    " is not supported, only Sequential and Functional");
}

}  // namespace cohort
