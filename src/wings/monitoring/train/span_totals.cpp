// Spans are told when they end, so those within a span are told before it. A thread remembers its last ones, to find
// them when the outer one ends.
#include "wings/monitoring/train/span_totals.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/traced_elsewhere.h"
#include "cohort/trace.h"

namespace cohort {

namespace {

using Clock = std::chrono::steady_clock;

struct EndedSpan {
  Clock::time_point begin;
  Clock::duration length;
};

// Returns how much of a span was that of spans within it, and remembers it instead of them.
Clock::duration take_inner(Clock::time_point begin, Clock::time_point end) {
  constexpr std::size_t kMost = 1024;  // a span with more of them within it has some of their time, too
  thread_local std::vector<EndedSpan> ended;
  if (ended.size() == kMost) ended.erase(ended.begin(), ended.begin() + kMost / 2);
  Clock::duration inner{};
  for (; !ended.empty() && ended.back().begin >= begin; ended.pop_back()) inner += ended.back().length;
  ended.push_back({begin, end - begin});
  return inner;
}

}  // namespace

SpanTotals& SpanTotals::of_process() {
  static SpanTotals totals;
  static const bool hears = [] {
    span_listener = [](const char* category, const char* name, Clock::time_point begin, Clock::time_point end) {
      totals.add(category, name, begin, end);
    };
    detail::tracing.fetch_or(detail::kHeard);
    return true;
  }();
  static_cast<void>(hears);
  return totals;
}

void SpanTotals::add(const char* category, const char* name, Clock::time_point begin, Clock::time_point end) {
  const Clock::duration own = end - begin - take_inner(begin, end);
  const bool writes = std::string_view(category) == "checkpoint" && std::string_view(name).starts_with("write");
  const std::lock_guard lock(mutex_);
  seconds_[category] += std::chrono::duration<double>(std::max(own, Clock::duration::zero())).count();
  if (!writes) return;
  last_checkpoint_ = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::map<std::string, double> SpanTotals::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

std::optional<double> SpanTotals::last_checkpoint() const {
  const std::lock_guard lock(mutex_);
  return last_checkpoint_;
}

}  // namespace cohort
