// Trace: records what every thread does and when, as a file for chrome://tracing or ui.perfetto.dev.
//
//   {
//     Trace trace({.file = "trace.json"});
//     model.fit(...);
//   }  // written here
//
// The library's own spans have the categories "compute" (forward, backward, update), "communication" (waits for other
// replicas, exchanges with other workers), "input" (steps that are prepared, waits for them), "checkpoint" and
// "evaluation". Programs may add theirs. While no trace is being taken a span costs the reading of one flag.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace cohort {

struct TraceOptions {
  std::filesystem::path file;      // written at the end; empty: only the summary
  std::string process = "cohort";  // its name in the picture
  int64_t most_spans = 1'000'000;  // the most spans of each thread; later ones are left out, and counted
  std::string close_up = {};       // a name of spans, of the last of which TraceSummary::close_up tells; empty: of none
};

// A span as it was recorded.
struct TracedSpan {
  std::string category;  // such as "compute"
  std::string name;      // such as "forward"
  double begin = 0.0;    // seconds since the trace began
  double end = 0.0;      // likewise
};

// The time that each thread spent in each category.
struct TraceSummary {
  double seconds = 0.0;  // the time from beginning to end
  // Seconds of each thread, by category; the time of a span within another is the inner one's.
  std::map<std::string, std::map<std::string, double>> seconds_of;
  // The same over time: the seconds in each of so many parts of equal length.
  static constexpr int kParts = 200;
  // Seconds in each part, by thread and category.
  std::map<std::string, std::map<std::string, std::vector<double>>> seconds_in_parts;
  // The spans of each thread within the last one of the name TraceOptions::close_up, in the order of their beginnings;
  // empty: there was none.
  std::map<std::string, std::vector<TracedSpan>> close_up;
  std::string close_up_thread;  // the thread that recorded that one
  int64_t left_out = 0;         // spans that were not recorded, because there were more than TraceOptions::most_spans
};

// Records everything while it lives. A process has one at a time (FailedPrecondition).
class Trace {
 public:
  // NotFound: there is no folder for the file. InvalidArgument: the file is a folder.
  explicit Trace(TraceOptions options);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  // Does as finish(), but only logs errors.
  ~Trace();

  // Ends the recording and writes the file. NotFound or Unavailable: it cannot be written.
  TraceSummary finish();

 private:
  TraceOptions options_;
  bool finished_ = false;
};

namespace detail {
inline constexpr int kTraced = 1, kHeard = 2;  // a trace is being taken; there is a listener (base/traced_elsewhere.h)
inline std::atomic<int> tracing = 0;
void end_span(const char* category, const char* name, std::chrono::steady_clock::time_point begin);
}  // namespace detail

// A span that is recorded on this thread while it lives. Both texts have to outlive the trace, as literals do.
class TraceSpan {
 public:
  // Begins a span.
  TraceSpan(const char* category, const char* name) : category_(category), name_(name) {
    on_ = detail::tracing.load(std::memory_order_relaxed) != 0;
    if (on_) begin_ = std::chrono::steady_clock::now();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (on_) detail::end_span(category_, name_, begin_);
  }

 private:
  const char* category_;
  const char* name_;
  bool on_ = false;
  std::chrono::steady_clock::time_point begin_;
};

// Sets this thread's name in traces.
void name_traced_thread(const std::string& name);

}  // namespace cohort
