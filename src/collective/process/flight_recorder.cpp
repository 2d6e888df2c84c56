#include "collective/process/flight_recorder.h"

#include <algorithm>

#include "base/deadline.h"

#include <c10/util/StringUtil.h>

namespace cohort {

namespace {

std::string text_of(FlightRecorder::Clock::duration time) {
  return to_text(std::chrono::duration_cast<std::chrono::milliseconds>(time));
}

}  // namespace

uint64_t FlightRecorder::begin(std::string what) {
  const std::lock_guard lock(mutex_);
  ++count_;
  ring_[count_ % kKept] = {.number = count_, .what = std::move(what), .begin = Clock::now()};
  return count_;
}

void FlightRecorder::end(uint64_t number, std::string error) {
  const std::lock_guard lock(mutex_);
  Entry& entry = ring_[number % kKept];
  if (entry.number != number) return;
  entry.end = Clock::now();
  entry.error = std::move(error);
}

std::optional<FlightRecorder::Entry> FlightRecorder::last() const {
  const std::lock_guard lock(mutex_);
  return count_ == 0 ? std::nullopt : std::optional(ring_[count_ % kKept]);
}

std::vector<FlightRecorder::Entry> FlightRecorder::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> list;
  for (const Entry& entry : ring_) {
    if (entry.number != 0) list.push_back(entry);
  }
  std::sort(list.begin(), list.end(), [](const Entry& a, const Entry& b) { return a.number < b.number; });
  return list;
}

namespace {

// A collective of hundreds of tensors names them all.
std::string shortened(const std::string& what) {
  constexpr std::size_t kMost = 200;
  return what.size() <= kMost ? what : c10::str(std::string_view(what).substr(0, kMost), "...");
}

}  // namespace

std::string FlightRecorder::dump() const {
  std::string text;
  const Clock::time_point now = Clock::now();
  for (const Entry& entry : entries()) {
    std::string fate = "pending";
    if (entry.end) fate = entry.error.empty() ? "took " + text_of(*entry.end - entry.begin) : "failed: " + entry.error;
    text += c10::str("  #", entry.number, "  ", text_of(now - entry.begin), " ago, ", fate, ": ", shortened(entry.what),
                     "\n");
  }
  return text;
}

}  // namespace cohort
