#include "cohort/trace.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "base/log.h"

namespace cohort {

namespace {

using Clock = std::chrono::steady_clock;

struct SpanRecord {
  const char* category;
  const char* name;
  Clock::time_point begin;
  Clock::time_point end;
};

// What one thread has recorded; it lives on when the thread has ended.
struct ThreadRecord {
  std::mutex mutex;  // the thread's own, but for the trace's end
  std::string name;
  int64_t number = 0;
  int64_t left_out = 0;
  std::vector<SpanRecord> spans;
};

struct Recorder {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadRecord>> threads;
  int64_t made = 0;
  std::atomic<int64_t> most_spans = 0;
  Clock::time_point begin;
};

Recorder& recorder() {
  static Recorder made;
  return made;
}

ThreadRecord& own_record() {
  thread_local const std::shared_ptr<ThreadRecord> own = [] {
    auto record = std::make_shared<ThreadRecord>();
    const std::lock_guard lock(recorder().mutex);
    record->number = ++recorder().made;
    record->name = "thread " + std::to_string(record->number);
    // Threads that have ended and left nothing.
    std::erase_if(recorder().threads, [](const auto& each) { return each.use_count() == 1 && each->spans.empty(); });
    recorder().threads.push_back(record);
    return record;
  }();
  return *own;
}

double seconds(Clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

// The time of each category, without that of spans within; they are sorted by their beginnings.
std::map<std::string, double> time_of_categories(const std::vector<SpanRecord>& spans) {
  std::map<std::string, double> total;
  std::vector<const SpanRecord*> open;
  for (const SpanRecord& span : spans) {
    while (!open.empty() && open.back()->end <= span.begin) open.pop_back();
    const double length = seconds(span.end - span.begin);
    total[span.category] += length;
    if (!open.empty()) total[open.back()->category] -= length;
    open.push_back(&span);
  }
  return total;
}

std::vector<SpanRecord> taken_from(ThreadRecord& thread, TraceSummary& summary) {
  const std::lock_guard lock(thread.mutex);
  std::vector<SpanRecord> spans = std::exchange(thread.spans, {});
  summary.left_out += std::exchange(thread.left_out, 0);
  // A span is recorded at its end.
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return spans;
}

}  // namespace

namespace detail {

void end_span(const char* category, const char* name, Clock::time_point begin) {
  const Clock::time_point end = Clock::now();
  ThreadRecord& own = own_record();
  const std::lock_guard lock(own.mutex);
  if (static_cast<int64_t>(own.spans.size()) < recorder().most_spans) {
    own.spans.push_back({category, name, begin, end});
  } else {
    ++own.left_out;
  }
}

}  // namespace detail

void name_traced_thread(const std::string& name) {
  ThreadRecord& own = own_record();
  const std::lock_guard lock(own.mutex);
  own.name = name;
}

Trace::Trace(TraceOptions options) : options_(std::move(options)) {
  const std::lock_guard lock(recorder().mutex);
  if (detail::tracing.load()) fail<FailedPrecondition>("[trace] another trace is being taken");
  for (const auto& thread : recorder().threads) {
    const std::lock_guard own(thread->mutex);
    thread->spans.clear();
    thread->left_out = 0;
  }
  recorder().most_spans = options_.most_spans;
  recorder().begin = Clock::now();
  detail::tracing.store(true);
}

Trace::~Trace() {
  try {
    finish();
  } catch (const std::exception& error) {
    log().error("{}", error.what());
  }
}

TraceSummary Trace::finish() {
  if (std::exchange(finished_, true)) return {};
  detail::tracing.store(false);
  TraceSummary summary{.seconds = seconds(Clock::now() - recorder().begin)};
  const auto microseconds = [](Clock::duration span) {
    return std::chrono::duration<double, std::micro>(span).count();
  };
  nlohmann::ordered_json events = nlohmann::json::array();
  const auto describe = [&](const char* what, int64_t thread, const std::string& name) {
    events.push_back({{"ph", "M"}, {"name", what}, {"pid", 1}, {"tid", thread}, {"args", {{"name", name}}}});
  };
  describe("process_name", 0, options_.process);
  std::vector<std::shared_ptr<ThreadRecord>> threads;
  {
    const std::lock_guard lock(recorder().mutex);
    threads = recorder().threads;
  }
  for (const auto& thread : threads) {
    const std::vector<SpanRecord> spans = taken_from(*thread, summary);
    if (spans.empty()) continue;
    describe("thread_name", thread->number, thread->name);
    for (const SpanRecord& span : spans) {
      events.push_back({{"ph", "X"},
                        {"name", span.name},
                        {"cat", span.category},
                        {"pid", 1},
                        {"tid", thread->number},
                        {"ts", microseconds(span.begin - recorder().begin)},
                        {"dur", microseconds(span.end - span.begin)}});
    }
    for (const auto& [category, spent] : time_of_categories(spans)) summary.seconds_of[thread->name][category] += spent;
  }
  if (options_.file.empty()) return summary;
  AtomicFile file(options_.file);
  file.write(nlohmann::ordered_json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n");
  file.commit();
  return summary;
}

}  // namespace cohort
