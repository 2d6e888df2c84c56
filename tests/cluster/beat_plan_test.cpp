// Heartbeats through an outage, without a network: what is sent in it is lost, and so is what was under way.
#include "cluster/beat_plan.h"

#include <gtest/gtest.h>

namespace cohort::beat_plan_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The longest silence that both ends notice: the task of its peer, and the peer of the task.
struct Silence {
  milliseconds at_task{0};
  milliseconds at_peer{0};
};

// The task talks to its peer from 0 on; nothing passes from `from` until `to`, and of what is sent then the first
// messages are lost as well. A new connection works at once if it is opened outside of the outage, and an old one not
// any more.
Silence talk(milliseconds patience, milliseconds from, milliseconds to, int lost = 0) {
  using Time = BeatPlan::Time;
  const Time begin;
  BeatPlan plan(patience, begin);
  Silence longest;
  Time heard_by_peer = begin;
  for (Time now = begin; now < begin + to + 2 * patience;) {
    const auto [wait, limit, again] = plan.next(now);
    const auto cut = [&](Time time) { return time >= begin + from && time < begin + to; };
    const auto passed = [&](Time since, Time until) { return std::chrono::duration_cast<milliseconds>(until - since); };
    bool answered = false;
    for (Time sent = now; sent < now + limit && !answered; sent += sent == now ? wait + again : again) {
      if (cut(sent) || (sent >= begin + to && lost-- > 0)) continue;
      longest.at_peer = std::max(longest.at_peer, passed(heard_by_peer, sent));
      heard_by_peer = sent;
      answered = !cut(sent + wait) && sent + wait <= now + limit;
      if (!answered) continue;
      longest.at_task = std::max(longest.at_task, passed(now - plan.silence(now), sent + wait));
      now = sent + wait + milliseconds(1);
      plan.heard(now);
    }
    if (!answered) {
      now += limit;
      plan.failed();
      if (plan.lost(now))
        return {.at_task = patience, .at_peer = std::max(longest.at_peer, passed(heard_by_peer, now))};
    }
  }
  return longest;
}

TEST(BeatPlan, AnOutageThatIsShorterThanThePatienceByAFifthIsSurvived) {
  for (const milliseconds patience : {milliseconds(5000), milliseconds(60'000)}) {
    for (int begin = 0; begin < 100; ++begin) {
      for (const int outage : {10, 30, 50, 66, 75, 80}) {
        const milliseconds from = patience + begin * patience / 100;
        const Silence silence = talk(patience, from, from + outage * patience / 100);
        EXPECT_LT(silence.at_task, patience) << outage << " % of " << patience.count() << " from " << from.count();
        EXPECT_LT(silence.at_peer, patience) << outage << " % of " << patience.count() << " from " << from.count();
      }
    }
  }
}

TEST(BeatPlan, AnOutageThatIsShorterThanThePatienceByASecondIsSurvived) {
  for (const milliseconds patience : {seconds(5), seconds(7), seconds(20), seconds(60), seconds(300)}) {
    for (int begin = 0; begin < 300; ++begin) {
      const milliseconds from = patience + begin * milliseconds(17);
      for (const milliseconds shorter :
           {milliseconds(1000), milliseconds(1100), milliseconds(1500), milliseconds(4000)}) {
        const Silence silence = talk(patience, from, from + patience - shorter);
        EXPECT_LT(silence.at_task, patience) << shorter.count() << " less than " << patience.count();
        EXPECT_LT(silence.at_peer, patience) << shorter.count() << " less than " << patience.count();
      }
    }
  }
}

TEST(BeatPlan, MessagesThatAreLostAfterAnOutageAreSentAgainInTime) {
  for (const milliseconds patience : {seconds(5), seconds(20), seconds(60)}) {
    for (int begin = 0; begin < 300; ++begin) {
      const milliseconds from = patience + begin * milliseconds(17);
      for (const auto& [outage, lost] : {std::pair(3 * patience / 5, 5), std::pair(patience - seconds(1), 1)}) {
        const Silence silence = talk(patience, from, from + outage, lost);
        EXPECT_LT(silence.at_task, patience) << outage.count() << " ms from " << from.count();
        EXPECT_LT(silence.at_peer, patience) << outage.count() << " ms from " << from.count();
      }
    }
  }
}

TEST(BeatPlan, OverAFarNetworkNothingIsSentTwice) {
  BeatPlan::Time now;
  BeatPlan plan(seconds(5), now);
  EXPECT_EQ(plan.next(now).again, BeatPlan::kAgain);
  constexpr milliseconds kFar(300);
  for (int i = 0; i < 50; ++i) {
    now += plan.next(now).wait + kFar;
    plan.heard(now);
  }
  EXPECT_GT(plan.next(now).again, kFar);
}

TEST(BeatPlan, AnOutageThatIsLongerThanThePatienceIsNotSurvived) {
  const Silence silence = talk(seconds(5), seconds(5), milliseconds(10'100));
  EXPECT_EQ(silence.at_task, seconds(5));
  EXPECT_GE(silence.at_peer, seconds(5));
}

TEST(BeatPlan, NoAttemptIsTooShortForABusyMachine) {
  const BeatPlan::Time begin;
  BeatPlan plan(milliseconds(500), begin);
  EXPECT_EQ(plan.next(begin).limit, milliseconds(400));
  plan.failed();
  EXPECT_EQ(plan.next(begin).limit, milliseconds(400));
  EXPECT_EQ(plan.next(begin + milliseconds(400)).limit, milliseconds(100));
}

TEST(BeatPlan, EveryFourthRepetitionHasMoreTime) {
  const BeatPlan::Time begin;
  BeatPlan plan(seconds(12), begin);
  EXPECT_EQ(plan.next(begin).wait, milliseconds(400)) << "the peer hears of the task soon before any outage";
  EXPECT_EQ(plan.next(begin).limit, seconds(3));
  for (const int wanted : {1, 1, 1, 3, 1}) {
    plan.failed();
    EXPECT_EQ(plan.next(begin).limit, seconds(wanted));
    EXPECT_EQ(plan.next(begin).wait, seconds(0));
  }
  EXPECT_EQ(plan.next(begin + milliseconds(11'900)).limit, milliseconds(100)) << "no longer than until it is lost";
  plan.heard(begin + seconds(11));
  EXPECT_EQ(plan.next(begin + seconds(11)).limit, seconds(3));
}

}  // namespace
}  // namespace cohort::beat_plan_test
