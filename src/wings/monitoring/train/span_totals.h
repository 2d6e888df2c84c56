// SpanTotals: the seconds that all threads of the process have spent in the spans of each category
// (cohort/trace.h).
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace cohort {

class SpanTotals {
 public:
  // Returns those of the process, which are counted from the first call on.
  static SpanTotals& of_process();

  // Adds a span of this thread that has just ended. The time of a span within another one is the inner one's.
  void add(const char* category, const char* name, std::chrono::steady_clock::time_point begin,
           std::chrono::steady_clock::time_point end);

  // Returns the seconds by category.
  std::map<std::string, double> seconds() const;
  // Returns when a checkpoint was last written, in seconds since 1970.
  std::optional<double> last_checkpoint() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, double> seconds_;
  std::optional<double> last_checkpoint_;
};

}  // namespace cohort
