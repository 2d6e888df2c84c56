// The formats that configurations come in, as values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/models/config.h"

namespace cohort {

// YAML, of which JSON is a part. InvalidArgument names the origin and the line; a key twice is one too.
ConfigValue parse_yaml(std::string_view text, const std::string& origin);

// "a.b=1, c=[1,2], d='x'".
ConfigValue parse_assignments(std::string_view text, const std::string& origin);

// A statement of a gin file.
struct GinStatement {
  enum class Kind { kBinding, kMacro, kInclude };

  Kind kind = Kind::kBinding;
  std::string name;  // of a binding the path, of a macro its own, of an include the file
  ConfigValue value;
  int64_t line = 0;
};
// A scalar "%NAME" in a value, not quoted, has become a map of that one member without value: the macro's use.
std::vector<GinStatement> parse_gin(std::string_view text, const std::string& origin);

// A macro's name where the value is its use; empty otherwise.
std::string macro_of(const ConfigValue& value);

}  // namespace cohort
