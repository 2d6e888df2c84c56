// Vision transformers of any size.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/train/applications.h"

namespace cohort::applications {

struct TransformerSize {
  int64_t patch;   // height and width of a patch
  int64_t layers;  // the number of blocks
  int64_t heads;   // a divisor of `hidden`
  int64_t hidden;  // numbers of a token
  int64_t mlp;     // units of the dense layer within a block
};

// Makes a vision transformer; `name` is that of its function, and in lower case that of the model.
Application make_vision_transformer(const std::string& name, const TransformerSize& size, const ViTOptions& options);

}  // namespace cohort::applications
