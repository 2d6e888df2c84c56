// The forms in which LayerKind::config() has options of a few types.
#pragma once

#include <optional>

#include "cohort/train/layers/more_convolutions.h"

namespace cohort {

inline OptionValue option_of(Padding padding) {
  return std::string(padding == Padding::kValid ? "valid" : padding == Padding::kSame ? "same" : "causal");
}

inline OptionValue option_of(const Size2& size) {
  return std::vector<int64_t>{size.height, size.width};
}

inline OptionValue option_of(const Size3& size) {
  return std::vector<int64_t>{size.depth, size.height, size.width};
}

inline OptionValue option_of(int64_t number) {
  return number;
}

// An option that may be unset.
template <typename Value>
OptionValue option_of(const std::optional<Value>& value) {
  if (!value) return std::monostate();
  return option_of(*value);
}

}  // namespace cohort
