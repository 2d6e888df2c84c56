// GinFormat: reads bindings in gin's format. A wing adds it (base/extension.h).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "cohort/models/config.h"

namespace cohort {

struct GinText {
  std::string_view text;
  std::string origin;            // for messages
  std::filesystem::path folder;  // where the files that it includes are
};

struct GinBinding {
  std::string name;   // a path, or the end of one
  ConfigValue value;  // without macros
  std::string place;  // the origin and the line
  std::string origin;
};

struct GinFormat {
  // Calls `set` with each binding, those of included files, too. `macros` has those of earlier texts.
  void (*read)(const GinText& text, std::map<std::string, ConfigValue>& macros,
               const std::function<void(const GinBinding& binding)>& set);
};

}  // namespace cohort
