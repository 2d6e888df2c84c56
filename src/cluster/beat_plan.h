// BeatPlan: says how long a task's next sign of life may be held at its peer, how long it may take, and when it is sent
// again meanwhile. It reads no clock.
//
// An outage is survived if it is shorter than the peer's patience by a second (by a fifth, if the patience is less than
// 5 s). The peer has last heard of this task 0.4 s before the outage began at most. A heartbeat that is not answered is
// sent again every 0.2 s, each time over a new connection (rpc/probe.h), while the first one may still be answered: so
// a few of them follow an outage, and one that is lost, too, does no harm.
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
    std::chrono::milliseconds again;  // the time beyond `wait` after which it is sent again
  };

  // The time after which an answer over a near network is late.
  static constexpr std::chrono::milliseconds kAgain{200};

  // Makes a plan for a peer that takes this task for lost after `patience`, and is taken for lost after that time too.
  BeatPlan(std::chrono::milliseconds patience, Time now) : peer_(patience) { peer_.hear(now); }

  // Notes an answer to the latest attempt.
  void heard(Time now) {
    peer_.hear(now);
    failures_ = 0;
    const Time::duration took = std::max(now - due_, Time::duration(0));
    usual_ = std::min(took, usual_ + (took - usual_) / 8);
  }
  // Notes that an attempt was not answered.
  void failed() { ++failures_; }

  // Returns the next attempt. Of the repetitions every fourth one has more time, so that slow machines get through.
  Attempt next(Time now) {
    using std::chrono::milliseconds;
    const milliseconds part = std::max(peer_.patience() / kParts, milliseconds(1));
    const auto silence = std::chrono::duration_cast<milliseconds>(peer_.silence(now));
    const milliseconds left = std::max(peer_.patience() - silence, milliseconds(1));
    const milliseconds before_last = left - std::min(kLast, peer_.patience() / 5);
    const auto limited = [&](milliseconds time) {
      const milliseconds most = before_last > milliseconds(0) ? before_last : kLeast;
      return std::min(left, std::max(std::min(time, most), kLeast));
    };
    const milliseconds wait = failures_ == 0 ? std::min(part, kLeast) : milliseconds(0);
    due_ = now + wait;
    return {.wait = wait,
            .limit = limited(failures_ % 4 == 0 ? 3 * part : part),
            .again = std::max(kAgain, 2 * std::chrono::duration_cast<milliseconds>(usual_))};
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
  Time due_{};               // when the latest attempt is answered over a network that takes no time
  Time::duration usual_{0};  // the time beyond that which answers take
};

}  // namespace cohort
