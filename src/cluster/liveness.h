// Liveness: what is known of one peer's being alive: which of its processes is there, when that was last heard of, how
// long it may be silent, and who else wants its place. There is no clock in it: times come as arguments.
#pragma once

#include <chrono>
#include <cstdint>

namespace cohort {

class Liveness {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A peer that nobody has heard of yet. It is lost when it is silent for `patience`.
  explicit Liveness(std::chrono::milliseconds patience) : patience_(patience) {}

  // The process with this number, drawn at its start, is the peer from now on.
  void enter(uint64_t incarnation, Time now);
  // Notes a sign of life, which also clears a suspicion.
  void hear(Time now);
  // Takes the peer for lost until it is heard of again: its connection broke, as a process that dies breaks it.
  void suspect() { suspected_ = true; }

  bool entered() const { return entered_; }
  bool is(uint64_t incarnation) const { return entered_ && incarnation_ == incarnation; }
  uint64_t incarnation() const { return incarnation_; }
  std::chrono::milliseconds patience() const { return patience_; }
  bool suspected() const { return suspected_; }
  Time::duration silence(Time now) const { return now - heard_; }
  bool lost(Time now) const { return suspected_ || silence(now) >= patience_; }

  // Another process was started as the same peer, and asks for its place; the first time counts.
  void contest(uint64_t incarnation, Time now);
  // Whether the peer has shown since then that it is alive. What came from it just before or shortly afterwards may
  // have been under way when it died.
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
