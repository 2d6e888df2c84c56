// Logging, through spdlog: one logger named "cohort" on standard error.
// The level is COHORT_LOG_LEVEL (trace, debug, info, warn, error, off), by default warn.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace cohort {

// Thread-safe; made at the first call.
spdlog::logger& log();

// Warns the first time that this process says exactly this; later the same text is dropped.
void warn_once(std::string_view message);

}  // namespace cohort
