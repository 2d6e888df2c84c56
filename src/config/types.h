// The types of fields: their names, and the way from values to fields and back to text.
#pragma once

#include <string>

#include "cohort/models/config.h"

namespace cohort {

// Returns the name of the type: "integer", "list of numbers", ...
std::string type_name(const ConfigFields::Target& target);
// Returns the value as YAML, in one line.
std::string to_text(const ConfigFields::Target& target);
// Gives the field the value. Returns false if that is not of the field's type.
bool assign(const ConfigFields::Target& target, const ConfigValue& value);
// Returns the value as a text for messages.
std::string to_text(const ConfigValue& value);

}  // namespace cohort
