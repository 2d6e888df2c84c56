#include "cohort/trace.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/traced_elsewhere.h"

namespace cohort {

namespace {

using Clock = std::chrono::steady_clock;

struct SpanRecord {
  const char* category;
  const char* name;
  Clock::time_point begin;
  Clock::time_point end;
};

// The spans that one thread has recorded. They outlive the thread.
struct ThreadRecord {
  std::mutex mutex;  // used by the thread itself, and by the end of the trace
  std::string name;
  int64_t number = 0;
  int64_t left_out = 0;
  std::vector<SpanRecord> spans;
};

struct TraceRecorder {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadRecord>> threads;
  int64_t made = 0;
  std::atomic<int64_t> most_spans = 0;
  Clock::time_point begin;
};

TraceRecorder& recorder() {
  static TraceRecorder made;
  return made;
}

// Whether the spans of this thread are left out.
bool& traced_elsewhere() {
  thread_local bool elsewhere = false;
  return elsewhere;
}

ThreadRecord& own_record() {
  thread_local const std::shared_ptr<ThreadRecord> own = [] {
    auto record = std::make_shared<ThreadRecord>();
    const std::lock_guard lock(recorder().mutex);
    record->number = ++recorder().made;
    record->name = "thread " + std::to_string(record->number);
    // Forgets threads that have ended without a span.
    std::erase_if(recorder().threads, [](const auto& each) { return each.use_count() == 1 && each->spans.empty(); });
    recorder().threads.push_back(record);
    return record;
  }();
  return *own;
}

double seconds(Clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

// Calls fn(category, begin, end) for each stretch of time of the innermost span; the spans are sorted by their
// beginnings, the outer one of two first.
template <typename Fn>
void for_each_stretch(const std::vector<SpanRecord>& spans, const Fn& fn) {
  std::vector<const SpanRecord*> open;
  Clock::time_point at;
  const auto tell_until = [&](Clock::time_point time) {
    if (time > at) fn(open.back()->category, at, time);
    at = std::max(at, time);
  };
  const auto close_until = [&](Clock::time_point time) {
    for (; !open.empty() && open.back()->end <= time; open.pop_back()) tell_until(open.back()->end);
  };
  for (const SpanRecord& span : spans) {
    close_until(span.begin);
    if (!open.empty()) tell_until(span.begin);
    at = std::max(at, span.begin);
    open.push_back(&span);
  }
  close_until(Clock::time_point::max());
}

// Adds a stretch to the parts of the time that it lies in.
void add_to_parts(std::vector<double>& parts, double begin, double end, double part) {
  parts.resize(TraceSummary::kParts);
  const auto index = [&](double time) {
    return std::clamp(static_cast<int>(time / part), 0, TraceSummary::kParts - 1);
  };
  for (int i = index(begin); i <= index(end); ++i) {
    const double until = i + 1 == TraceSummary::kParts ? end : std::min(end, (i + 1) * part);
    parts[static_cast<std::size_t>(i)] += std::max(until - std::max(begin, i * part), 0.0);
  }
}

void add_up(const std::vector<SpanRecord>& spans, const std::string& thread, TraceSummary& summary) {
  const double part = std::max(summary.seconds, 1e-9) / TraceSummary::kParts;
  for_each_stretch(spans, [&](const char* category, Clock::time_point begin, Clock::time_point end) {
    summary.seconds_of[thread][category] += seconds(end - begin);
    add_to_parts(summary.seconds_in_parts[thread][category], seconds(begin - recorder().begin),
                 seconds(end - recorder().begin), part);
  });
}

// The spans of a thread with its name.
struct ThreadSpans {
  std::string thread;
  std::vector<SpanRecord> spans;
};

// Notes what all threads did within the last span of a name.
void add_close_up(const std::vector<ThreadSpans>& all, std::string_view name, TraceSummary& summary) {
  const SpanRecord* last = nullptr;
  for (const ThreadSpans& each : all) {
    for (const SpanRecord& span : each.spans) {
      if (span.name != name || (last != nullptr && span.end < last->end)) continue;
      last = &span;
      summary.close_up_thread = each.thread;
    }
  }
  if (last == nullptr) return;
  const auto since = [](Clock::time_point time) { return seconds(time - recorder().begin); };
  for (const ThreadSpans& each : all) {
    for (const SpanRecord& span : each.spans) {
      if (&span == last || span.begin < last->begin || span.end > last->end) continue;
      summary.close_up[each.thread].push_back({span.category, span.name, since(span.begin), since(span.end)});
    }
  }
}

std::vector<SpanRecord> taken_from(ThreadRecord& thread, TraceSummary& summary) {
  const std::lock_guard lock(thread.mutex);
  std::vector<SpanRecord> spans = std::exchange(thread.spans, {});
  summary.left_out += std::exchange(thread.left_out, 0);
  // A span is recorded at its end.
  std::sort(spans.begin(), spans.end(),
            [](const auto& a, const auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
  return spans;
}

// Throws before the recording begins if the file could not be written.
void require_place(const std::filesystem::path& file) {
  if (file.empty()) return;  // the caller wants the summary alone
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  if (!std::filesystem::is_directory(folder)) {
    fail<NotFound>("[trace] there is no folder ", folder.string(), " for ", file.string());
  }
  if (std::filesystem::is_directory(file)) {
    fail<InvalidArgument>("[trace] ", file.string(), " is a folder, wanted the name of a file");
  }
}

}  // namespace

namespace detail {

void end_span(const char* category, const char* name, Clock::time_point begin) {
  if (traced_elsewhere()) return;
  const Clock::time_point end = Clock::now();
  if (const SpanListener listener = span_listener.load()) listener(category, name, begin, end);
  if ((tracing.load(std::memory_order_relaxed) & kTraced) == 0) return;
  ThreadRecord& own = own_record();
  const std::lock_guard lock(own.mutex);
  if (static_cast<int64_t>(own.spans.size()) < recorder().most_spans) {
    own.spans.push_back({category, name, begin, end});
  } else {
    ++own.left_out;
  }
}

}  // namespace detail

void leave_out_own_spans() {
  traced_elsewhere() = true;
}

void name_traced_thread(const std::string& name) {
  ThreadRecord& own = own_record();
  const std::lock_guard lock(own.mutex);
  own.name = name;
}

Trace::Trace(TraceOptions options) : options_(std::move(options)) {
  require_place(options_.file);
  const std::lock_guard lock(recorder().mutex);
  if ((detail::tracing.load() & detail::kTraced) != 0) fail<FailedPrecondition>("[trace] another trace is being taken");
  for (const auto& thread : recorder().threads) {
    const std::lock_guard own(thread->mutex);
    thread->spans.clear();
    thread->left_out = 0;
  }
  recorder().most_spans = options_.most_spans;
  recorder().begin = Clock::now();
  detail::tracing.fetch_or(detail::kTraced);
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
  detail::tracing.fetch_and(~detail::kTraced);
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
  std::vector<ThreadSpans> all;
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
    add_up(spans, thread->name, summary);
    if (!options_.close_up.empty()) all.push_back({thread->name, spans});
  }
  add_close_up(all, options_.close_up, summary);
  if (options_.file.empty()) return summary;
  AtomicFile file(options_.file);
  file.write(nlohmann::ordered_json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n");
  file.commit();
  return summary;
}

}  // namespace cohort
