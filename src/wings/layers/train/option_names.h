// The values of this wing's enumerations in files.
#pragma once

#include "cohort/train/layers/resampling.h"
#include "train/layers/layer_row.h"

namespace cohort {

inline constexpr auto option_names(UpSampling2DOptions::Interpolation /*of*/) {
  return std::to_array<std::string_view>({"nearest", "bilinear", "bicubic"});
}

}  // namespace cohort
