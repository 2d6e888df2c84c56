// Logging, through spdlog: one logger named "cohort" on standard error.
// The level is COHORT_LOG_LEVEL (trace, debug, info, warn, error, off), by default warn.
#pragma once

#include <spdlog/spdlog.h>

#include <iosfwd>
#include <string_view>

namespace cohort {

// Returns the logger, which is made at the first call. Thread-safe.
spdlog::logger& log();

// Warns the first time that this process says exactly this; later the same text is dropped.
void warn_once(std::string_view message);

// A line of a terminal that is drawn repeatedly, such as a progress bar. A log message to the same terminal ends the
// line first. Thread-safe. There is one such line at most.
class StandingLine {
 public:
  // Writes the text, which has no end of a line.
  static void draw(std::ostream& out, std::string_view text);
  // Ends the line if it still stands.
  static void end(std::ostream& out);
};

}  // namespace cohort
