// The formats of configurations, read into values.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "cohort/models/config.h"

namespace cohort {

// Reads YAML, of which JSON is a part. InvalidArgument names the origin and the line; a key may not be there twice.
ConfigValue parse_yaml(std::string_view text, const std::string& origin);

// Reads assignments: "a.b=1, c=[1,2], d='x'".
ConfigValue parse_assignments(std::string_view text, const std::string& origin);

// Returns the text of a file. NotFound: there is no such file.
std::string read_config_text(const std::filesystem::path& file);

}  // namespace cohort
