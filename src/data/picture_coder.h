// PictureCoder: what reads and writes pictures of files. The wing vision has it.
#pragma once

#include <torch/types.h>

#include <string>
#include <string_view>

#include "cohort/data/decode_options.h"

namespace cohort {

struct PictureCoder {
  torch::Tensor (*decode)(std::string_view bytes, const DecodeOptions& options, const std::string& source);
  std::string (*encode_png)(const torch::Tensor& image);
};

}  // namespace cohort
