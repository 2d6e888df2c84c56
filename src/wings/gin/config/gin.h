// Reads gin's format.
#pragma once

#include "config/gin.h"

namespace cohort {

// GinFormat::read.
void read_gin(const GinText& text, std::map<std::string, ConfigValue>& macros,
              const std::function<void(const GinBinding& binding)>& set);

}  // namespace cohort
