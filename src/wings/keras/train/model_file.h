// Models in config.json, with the places of their weights in the file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/model.h"
#include "wings/keras/train/bind_weights.h"
#include "wings/keras/train/place.h"

namespace cohort {

using FileTensors = std::map<std::string, torch::Tensor>;

FileTensors by_name(const NamedTensors& list);

// A model that was made of a file, without the file's weights.
struct ModelInFile {
  std::optional<Model> model = std::nullopt;
  std::vector<BoundWeight> weights = {};       // in Keras' order
  std::vector<std::string> outputs = {""};     // their names
  std::vector<std::string> vocabularies = {};  // the entries that its layers have used
};

// Makes the model that an object describes, whose weights are in the group ("layers/functional/"; empty: all of the
// file). `depth` is the number of models that it is in.
ModelInFile read_model(const Json& object, const FileTensors& file, const std::string& group, int depth,
                       const FilePlace& place);

// Does the part of read_model() for a graph of layers.
ModelInFile read_functional(const Json& config, const FileTensors& file, const std::string& group, int depth,
                            const FilePlace& place);

// An InputLayer.
struct KerasInput {
  Shape shape = {};
  torch::ScalarType dtype = torch::kFloat;
};
KerasInput input_of(const Json& layer, const FilePlace& place);

// Throws DataLoss unless the file has as many weights in the group as a layer asks for, before it takes memory.
void require_weights(const Layer& layer, const Shape& input, const FileTensors& file, const std::string& group,
                     const FilePlace& place);

}  // namespace cohort
