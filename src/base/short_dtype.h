// Short names of dtypes, which are those of StableHLO.
#pragma once

#include <torch/types.h>

#include <string_view>

namespace cohort {

// Returns "f32" for float. Empty: there is none.
inline std::string_view short_dtype(torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kFloat:
      return "f32";
    case torch::kDouble:
      return "f64";
    case torch::kHalf:
      return "f16";
    case torch::kBFloat16:
      return "bf16";
    case torch::kLong:
      return "i64";
    case torch::kInt:
      return "i32";
    case torch::kShort:
      return "i16";
    case torch::kChar:
      return "i8";
    case torch::kByte:
      return "ui8";
    case torch::kBool:
      return "i1";
    default:
      return "";
  }
}

}  // namespace cohort
