// FlightRecorder: the last collectives of a process, for the day on which one of them does not come to its end.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cohort {

// Thread-safe.
class FlightRecorder {
 public:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    uint64_t number = 0;  // the number of the collective, from 1
    std::string what;     // "all_reduce SUM of Float[784, 256]"
    Clock::time_point begin;
    std::optional<Clock::time_point> end;
    std::string error;  // the error of one that failed
  };

  static constexpr std::size_t kKept = 64;

  // Returns the number of the new entry.
  uint64_t begin(std::string what);
  void end(uint64_t number, std::string error = "");

  // Returns the newest entry; nothing before the first.
  std::optional<Entry> last() const;
  std::vector<Entry> entries() const;  // oldest first
  // Returns a line for each: number, how long ago it began, how long it took or how it failed, what it was.
  std::string dump() const;

 private:
  mutable std::mutex mutex_;
  std::array<Entry, kKept> ring_;
  uint64_t count_ = 0;
};

}  // namespace cohort
