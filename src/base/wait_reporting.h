// Waits that report: the log regularly says what is still missing, and so does the error that ends a wait which takes
// too long.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "cohort/error.h"

namespace cohort {

struct WaitOptions {
  std::string who = "";  // opens the messages: "[cluster] worker 1"
  std::string in = "";   // the operation that waits: "the barrier b"; empty: none is named
  std::chrono::milliseconds limit{};
  std::chrono::milliseconds report_interval = std::chrono::seconds(5);
  std::chrono::milliseconds pause{};  // between two tries
};

// Decides when a wait reports, and makes the text. It reads no clock.
class WaitReport {
 public:
  using Time = Deadline::Clock::time_point;

  WaitReport(WaitOptions options, Time begin)
      : options_(std::move(options)), begin_(begin), next_(begin + options_.report_interval) {}

  bool over(Time now) const { return now - begin_ >= options_.limit; }

  Deadline::Clock::duration waited(Time now) const { return now - begin_; }
  // Returns whether a report is due. After it has returned true the next report is due a report interval later.
  bool due(Time now);
  // Returns "WHO waits in IN for MISSING (5 s of 600 s)".
  std::string text(const std::string& missing, Time now) const;

  // Throws an error of this kind, "WHO waited 10 s in IN for MISSING", when the wait is over. Otherwise logs the text
  // if a report is due.
  template <typename Kind>
  void go_on(const std::string& missing, Time now) {
    if (over(now)) throw Kind(verdict(missing));
    warn_if_due(missing, now);
  }

 private:
  std::string verdict(const std::string& missing) const;
  void warn_if_due(const std::string& missing, Time now);

  WaitOptions options_;
  Time begin_;
  Time next_;
};

// Calls step(deadline) until it returns "". Other texts say what is missing: they stand in the log once every report
// interval, and in the error when the time is over. An exception of the step ends the wait.
template <typename Kind = DeadlineExceeded, typename Step>
void wait_reporting(const WaitOptions& options, const Step& step) {
  const Deadline deadline(options.limit);
  WaitReport report(options, Deadline::Clock::now());
  for (;;) {
    const std::string missing = step(deadline);
    if (missing.empty()) return;
    report.go_on<Kind>(missing, Deadline::Clock::now());
    std::this_thread::sleep_for(std::min(options.pause, deadline.left()));
  }
}

}  // namespace cohort
