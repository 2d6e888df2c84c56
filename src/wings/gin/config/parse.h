// The statements of gin's format (github.com/google/gin-config).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/models/config.h"

namespace cohort {

// A statement of a gin file.
struct GinStatement {
  enum class Kind { kBinding, kMacro, kInclude };

  Kind kind = Kind::kBinding;
  std::string name;  // the path of a binding, the name of a macro, the file of an include
  ConfigValue value;
  int64_t line = 0;
};
// Reads gin's format. A use of a macro, "%NAME" without quotes, becomes a map whose one member has that name and no
// value.
std::vector<GinStatement> parse_gin(std::string_view text, const std::string& origin);

// Returns the name of the macro if the value is a use of one; else an empty text.
std::string macro_of(const ConfigValue& value);

}  // namespace cohort
