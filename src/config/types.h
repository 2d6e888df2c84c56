// Fields by their type: from values, to text.
#pragma once

#include <string>

#include "cohort/models/config.h"

namespace cohort {

// "integer", "list of numbers", ...
std::string type_name(const ConfigFields::Target& target);
// As YAML, in one line.
std::string to_text(const ConfigFields::Target& target);
// False: the value is not of the field's type.
bool assign(const ConfigFields::Target& target, const ConfigValue& value);
// What came, for messages.
std::string to_text(const ConfigValue& value);

}  // namespace cohort
