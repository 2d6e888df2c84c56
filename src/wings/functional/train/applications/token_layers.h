// Layers of tokens [examples, tokens, size] for vision transformers, with torchvision's parameters.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort::applications {

// Makes a token of each place of a picture, puts another one before them, and adds a position to each: [examples, size,
// height, width] -> [examples, 1 + height * width, size]; parameters class_token [1, 1, size], pos_embedding [1, 1 +
// height * width, size].
Layer patch_tokens_layer(const std::string& name);

// Normalizes each token; parameters weight, bias [size].
Layer token_norm_layer(const std::string& name);

// Lets all tokens look at all; parameters in_proj_weight [3 * size, size], in_proj_bias, out_proj.weight,
// out_proj.bias.
Layer token_attention_layer(int64_t heads, const std::string& name);

}  // namespace cohort::applications
