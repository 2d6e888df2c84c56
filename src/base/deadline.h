// Deadline: a point in time by which something must have happened. Every wait in the library takes one.
#pragma once

#include <chrono>
#include <string>

namespace cohort {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(std::chrono::milliseconds limit) : limit_(limit), when_(Clock::now() + limit) {}

  Clock::time_point when() const { return when_; }
  std::chrono::milliseconds limit() const { return limit_; }
  bool passed() const { return Clock::now() >= when_; }

  // Returns the time that is left, which is never negative.
  std::chrono::milliseconds left() const {
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(when_ - Clock::now());
    return rest.count() > 0 ? rest : std::chrono::milliseconds(0);
  }

 private:
  std::chrono::milliseconds limit_;
  Clock::time_point when_;
};

// Returns the duration as messages show it: "1.5 s", "20 ms".
std::string to_text(std::chrono::milliseconds time);

}  // namespace cohort
