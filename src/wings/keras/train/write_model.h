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
  std::vector<std::string> outputs = {};  // their names
};

// NotFound: Keras' files have no such model, or no such layer.
WrittenModel write_model(const ModelState& state, const FilePlace& place);

// Fails unless the masks of a model do in Keras what they do here. NotFound: a MultiHeadAttention has its own.
void require_masks_of_keras(const ModelState& state, const FilePlace& place);

// Returns which weights of a file are which of a model's, in Keras' order. `group` is the model's in the file
// ("layers/functional/"; empty: all of the file).
std::vector<BoundWeight> bind_model(const ModelState& state, const std::string& group);

}  // namespace cohort
