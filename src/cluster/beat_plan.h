// BeatPlan: says how long a task's next sign of life may be held at its peer, and how long it may take. It reads no
// clock.
//
// A heartbeat that is not answered is repeated soon, over a new connection (rpc/probe.h), so that an outage is survived
// if it is shorter than the peer's patience by a second (by a fifth, if the patience is less than 5 s). The peer has
// last heard of this task 0.4 s before the outage began at most, and in the last second of the patience an attempt has
// 0.4 s at most, so that the next one begins soon after the outage.
#pragma once

#include <algorithm>
#include <chrono>

#include "cluster/liveness.h"

namespace cohort {

class BeatPlan {
 public:
  using Time = Liveness::Time;

  struct Attempt {
    std::chrono::milliseconds wait;   // the time for which the peer may hold it
    std::chrono::milliseconds limit;  // the time after which it has failed
  };

  // Makes a plan for a peer that takes this task for lost after `patience`, and is taken for lost after that time too.
  BeatPlan(std::chrono::milliseconds patience, Time now) : peer_(patience) { peer_.hear(now); }

  // Notes an answer.
  void heard(Time now) {
    peer_.hear(now);
    failures_ = 0;
  }
  // Notes that an attempt was not answered.
  void failed() { ++failures_; }

  // Returns the next attempt. Of the repetitions every fourth one has more time, so that slow machines get through.
  Attempt next(Time now) const {
    using std::chrono::milliseconds;
    const milliseconds part = std::max(peer_.patience() / kParts, milliseconds(1));
    const auto silence = std::chrono::duration_cast<milliseconds>(peer_.silence(now));
    const milliseconds left = std::max(peer_.patience() - silence, milliseconds(1));
    const milliseconds before_last = left - std::min(kLast, peer_.patience() / 5);
    const auto limited = [&](milliseconds time) {
      const milliseconds most = before_last > milliseconds(0) ? before_last : kLeast;
      return std::min(left, std::max(std::min(time, most), kLeast));
    };
    if (failures_ == 0) return {.wait = std::min(part, kLeast), .limit = limited(3 * part)};
    return {.wait = milliseconds(0), .limit = limited(failures_ % 4 == 0 ? 3 * part : part)};
  }

  bool lost(Time now) const { return peer_.lost(now); }
  Time::duration silence(Time now) const { return peer_.silence(now); }

 private:
  static constexpr int kParts = 12;
  // The least time of an attempt. A busy machine needs as long for a new connection, however short the patience is.
  static constexpr std::chrono::milliseconds kLeast{400};
  static constexpr std::chrono::milliseconds kLast{1000};  // the end of the patience, in which attempts are short

  Liveness peer_;
  int failures_ = 0;
};

}  // namespace cohort
