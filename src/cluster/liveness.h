// Liveness: tells whether one peer is alive. It knows which of the peer's processes is there, when that was last heard
// of, how long it may be silent, and who else wants its place. It reads no clock: times come as arguments.
#pragma once

#include <chrono>
#include <cstdint>

namespace cohort {

class Liveness {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Makes a peer that nobody has heard of yet. It is lost when it is silent for `patience`.
  explicit Liveness(std::chrono::milliseconds patience) : patience_(patience) {}

  // Takes the process with this number, which it drew at its start, for the peer from now on.
  void enter(uint64_t incarnation, Time now);
  // Notes a sign of life, which also clears a suspicion.
  void hear(Time now);
  // Takes the peer for lost until it is heard of again, because its connection broke, as it does when a process dies.
  void suspect() { suspected_ = true; }

  bool entered() const { return entered_; }
  bool is(uint64_t incarnation) const { return entered_ && incarnation_ == incarnation; }
  uint64_t incarnation() const { return incarnation_; }
  std::chrono::milliseconds patience() const { return patience_; }
  bool suspected() const { return suspected_; }
  Time heard() const { return heard_; }
  Time::duration silence(Time now) const { return now - heard_; }
  bool lost(Time now) const { return suspected_ || silence(now) >= patience_; }

  // Notes that another process was started as the same peer and asks for its place. The first time counts.
  void contest(uint64_t incarnation, Time now);
  // Returns whether the peer has shown since then that it is alive. Messages that came just before or shortly
  // afterwards do not count, because they may have been under way when it died.
  bool resists() const { return heard_ > contested_ + patience_ / 4; }

 private:
  std::chrono::milliseconds patience_;
  bool entered_ = false;
  bool suspected_ = false;
  uint64_t incarnation_ = 0;
  Time heard_{};
  uint64_t contender_ = 0;
  Time contested_{};
};

}  // namespace cohort
