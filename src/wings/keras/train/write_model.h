// Models as config.json has them.
#pragma once

#include <string>
#include <vector>

#include "train/model/model_state.h"
#include "wings/keras/train/bind_weights.h"
#include "wings/keras/train/place.h"

namespace cohort {

// A model's object, without what it was compiled with.
struct WrittenModel {
  Json object;
  std::vector<BoundWeight> weights = {};  // in Keras' order
  std::vector<std::string> outputs = {};  // their names
};

// Writes a model whose weights are in the group ("layers/functional/"; empty: all of the file). NotFound: Keras' files
// have no such model, or no such layer.
WrittenModel write_model(const ModelState& state, const std::string& group, const FilePlace& place);

}  // namespace cohort
