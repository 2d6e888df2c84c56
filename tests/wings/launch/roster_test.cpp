#include "wings/launch/elastic/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace cohort::cli::roster_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Report report_of(const std::string& name, int workers, int port = 0) {
  Report report;
  report.set_agent(name);
  report.set_host(name);
  report.set_port(port);
  report.set_workers(workers);
  return report;
}

// Agents that report once a second, and do at once what they are told.
class Agents {
 public:
  explicit Agents(const AgentRosterOptions& options) : roster_(options, now_) {}

  void join(const std::string& name, int workers) {
    agents_[name] = report_of(name, workers, 1000 + static_cast<int>(agents_.size()));
  }
  void lose(const std::string& name) { agents_.erase(name); }
  void hush(const std::string& name) { silent_.insert(name); }
  void wake(const std::string& name) { silent_.erase(name); }
  Report& agent(const std::string& name) { return agents_.at(name); }
  const Report& sent(const std::string& name) { return sent_.at(name); }
  // A report arrives that was sent before others.
  Order late(const Report& report) { return roster_.exchange(report, now_); }
  // A worker fails: what its agent reports.
  void fail(const std::string& name, int code) {
    Report& report = agents_.at(name);
    report.set_running(false);
    report.set_code(code);
    report.set_by_signal(code > 128);
  }
  void end_well() {
    for (auto& [name, report] : agents_) report.set_running(false);
  }

  // Everybody reports, so many times; the last orders.
  void pass(int times = 1) {
    for (int i = 0; i < times; ++i) {
      now_ += seconds(1);
      for (auto& [name, report] : agents_) {
        if (silent_.contains(name)) continue;
        report.set_number(report.number() + 1);
        sent_[name] = report;
        const Order order = orders_[name] = roster_.exchange(report, now_);
        if (order.kind() == Order::RUN && order.round() != report.round()) {
          report.set_round(order.round());
          report.set_running(true);
          report.set_asked(false);
          report.set_by_signal(false);
          report.set_code(0);
        } else if (order.kind() == Order::END && report.running()) {
          report.set_running(false);
          report.set_asked(true);
          report.set_code(42);
        }
      }
    }
  }

  std::vector<std::string> news() { return roster_.take_news(); }
  const Order& order(const std::string& name) { return orders_[name]; }
  // Workers of each agent that runs now, in the order of the ranks.
  std::string running() {
    std::map<int, std::string> parts;
    for (const auto& [name, report] : agents_) {
      const Order& order = orders_[name];
      if (order.kind() == Order::RUN) parts[order.first_rank()] = name + std::to_string(order.workers());
    }
    std::string text;
    for (const auto& [rank, part] : parts) text += (text.empty() ? "" : " ") + part;
    return text;
  }

 private:
  AgentRoster::Time now_;
  AgentRoster roster_;
  std::map<std::string, Report> agents_, sent_;
  std::set<std::string> silent_;
  std::map<std::string, Order> orders_;
};

TEST(Roster, BeginsWithEnoughWorkersAndEndsWell) {
  Agents run({.least = 3, .most = 4});
  run.join("a", 2);
  run.pass();
  EXPECT_EQ(run.order("a").kind(), Order::WAIT);
  run.join("b", 1);
  run.pass(2);
  EXPECT_EQ(run.running(), "") << "others may be on their way";
  run.pass(2);
  EXPECT_EQ(run.running(), "a2 b1");
  EXPECT_EQ(run.order("b").world(), 3);
  EXPECT_EQ(run.order("b").group(), 1);
  EXPECT_EQ(run.order("b").master_host(), "a");
  EXPECT_EQ(run.order("b").master_port(), run.agent("a").port());
  run.end_well();
  run.pass();
  EXPECT_EQ(run.order("b").kind(), Order::EXIT);
  EXPECT_EQ(run.order("b").code(), 0);
}

TEST(Roster, AKilledWorkerIsLostAndTheRestGoesOn) {
  Agents run({.least = 2, .most = 3});
  run.join("a", 2);
  run.join("b", 1);
  run.pass(2);
  EXPECT_EQ(run.running(), "a2 b1");
  run.fail("a", 137);
  run.pass();
  EXPECT_EQ(run.order("b").kind(), Order::END);
  run.pass(2);
  EXPECT_EQ(run.running(), "a1 b1");
  EXPECT_EQ(run.order("a").round(), 2);
}

TEST(Roster, ARoundThatEndsBeforeAllHaveBegunIsOver) {
  Agents run({.least = 1, .most = 2});
  run.join("a", 1);
  run.join("b", 1);
  run.pass();
  EXPECT_EQ(run.running(), "b1");
  run.hush("a");
  run.fail("b", 137);
  run.pass();
  run.wake("a");  // it has nothing to end
  run.pass(2);
  EXPECT_EQ(run.running(), "a1");
  EXPECT_EQ(run.order("a").round(), 2);
}

// An agent that is cut off keeps its workers for as long as its lease lasts there. Two groups would train at once if
// the next round did not wait for that.
TEST(Roster, NoRoundBeginsWhileWorkersOfALostAgentMayRun) {
  Agents run({.least = 1, .most = 2});
  run.join("a", 1);
  run.join("b", 1);
  run.pass(3);
  EXPECT_EQ(run.running(), "a1 b1");
  run.hush("a");
  run.pass(6);
  EXPECT_EQ(run.order("b").kind(), Order::WAIT) << "a is lost, b has ended, and a's workers may run";
  run.pass();
  EXPECT_EQ(run.order("b").kind(), Order::WAIT);
  run.pass(2);
  EXPECT_EQ(run.order("b").kind(), Order::RUN) << "a's lease has ended";
  EXPECT_EQ(run.order("b").world(), 1);
}

// A report that was given up may arrive after the one that took its place, even one from before the round.
TEST(Roster, AReportThatIsOutOfDateSaysNothing) {
  Agents run({.least = 1, .most = 2});
  run.join("a", 1);
  const Report early = run.agent("a");
  run.pass(3);
  EXPECT_EQ(run.running(), "a1");
  run.join("b", 1);
  run.hush("a");
  run.pass();
  EXPECT_EQ(run.late(early).kind(), Order::WAIT);
  run.pass(3);
  EXPECT_EQ(run.order("b").kind(), Order::WAIT) << "the worker of a still runs";
  run.wake("a");
  run.pass(4);
  EXPECT_EQ(run.running(), "a1 b1");
}

// A launcher sends its report again, and has begun the round that the answer to the first one ordered when the second
// one comes. By then the round is being ended. The launcher has not missed it.
TEST(Roster, AReportThatIsSentAgainSaysNothingNew) {
  Agents run({.least = 1, .most = 3});
  run.join("a", 1);
  run.join("b", 1);
  run.pass(3);
  EXPECT_EQ(run.running(), "a1 b1");
  const Report again = run.sent("b");
  run.hush("a");
  run.hush("b");
  run.join("c", 1);
  run.pass();  // the others are to save and end, to begin again with it
  EXPECT_EQ(run.late(again).kind(), Order::END);
  run.wake("a");
  run.pass(3);
  EXPECT_EQ(run.running(), "b1") << "nobody begins beside the worker of b";
  run.wake("b");
  run.pass(4);
  EXPECT_EQ(run.running(), "a1 b1 c1");
}

TEST(Roster, AFarewellThatIsSentAgainBringsNobodyBack) {
  Agents run({.least = 1, .most = 2});
  run.join("a", 1);
  run.pass();
  run.agent("a").set_leaving(true);
  run.pass(2);
  EXPECT_EQ(run.news().size(), 2U) << "it joins and leaves";
}

// It is heard of again while its workers save and end. They have time for that.
TEST(Roster, ARoundWaitsForOldWorkersOfAnAgentThatComesBack) {
  Agents run({.least = 1, .most = 2});
  run.join("a", 1);
  run.join("b", 1);
  run.pass(3);
  run.hush("a");
  run.pass(6);
  run.wake("a");
  run.pass(8);
  EXPECT_EQ(run.order("a").kind(), Order::WAIT);
  EXPECT_EQ(run.order("b").kind(), Order::WAIT);
  run.agent("a").set_running(false);
  run.pass(2);
  EXPECT_EQ(run.running(), "b1 a1");
}

TEST(Roster, AnAgentThatIsLostCostsTheOthersNothing) {
  Agents run({.least = 1, .most = 9});
  for (const char* name : {"a", "b", "c"}) run.join(name, 1);
  run.pass(4);
  run.lose("a");  // worker 0's
  run.pass();
  run.fail("b", 1);  // they miss it before the leader does
  run.fail("c", 1);
  run.pass(8);
  EXPECT_EQ(run.running(), "b1 c1");
  EXPECT_EQ(run.order("c").master_host(), "b");
}

TEST(Roster, WhoFailedFirstIsLostWhereNoneWasKilled) {
  Agents run({.least = 1, .most = 9});
  for (const char* name : {"a", "b", "c"}) run.join(name, 1);
  run.pass(4);
  run.fail("b", 3);
  run.pass();
  run.fail("c", 1);
  run.pass(5);
  EXPECT_EQ(run.running(), "") << "the cause may still show";
  run.pass(6);
  EXPECT_EQ(run.running(), "a1 c1");
}

TEST(Roster, NewWorkersAreTakenInUpToTheMost) {
  Agents run({.least = 1, .most = 3});
  run.join("a", 2);
  run.pass(4);
  EXPECT_EQ(run.running(), "a2");
  run.join("b", 4);
  run.pass();
  EXPECT_EQ(run.order("a").kind(), Order::RUN) << "b came after a's report";
  run.pass(4);
  EXPECT_EQ(run.running(), "a2 b1");
  run.join("c", 1);
  run.pass(3);
  EXPECT_EQ(run.order("a").round(), 2) << "there is no place for more";
}

TEST(Roster, APreemptedRoundIsNobodysFault) {
  Agents run({.least = 2, .most = 2});
  run.join("a", 1);
  run.join("b", 1);
  run.pass(2);
  run.fail("a", 42);
  run.fail("b", 42);
  run.pass(2);
  EXPECT_EQ(run.running(), "a1 b1");
  EXPECT_EQ(run.order("a").round(), 2);
}

TEST(Roster, WhoWasTakenForLostComesBackAsANewOne) {
  Agents run({.least = 1, .most = 2});
  run.join("a", 1);
  run.join("b", 1);
  run.pass(2);
  EXPECT_EQ(run.running(), "a1 b1");
  run.hush("b");
  run.pass(8);
  EXPECT_EQ(run.order("a").round(), 2);
  EXPECT_EQ(run.order("a").world(), 1);
  run.wake("b");  // it still runs the first round
  run.pass();
  EXPECT_NE(run.order("b").kind(), Order::RUN);
  run.agent("b").set_running(false);
  run.pass(4);
  EXPECT_EQ(run.running(), "a1 b1");
  EXPECT_EQ(run.order("b").round(), 3);
}

TEST(Roster, GivesUpWithoutEnough) {
  Agents run({.least = 2, .most = 2, .join_timeout = seconds(20)});
  run.join("a", 1);
  run.join("b", 1);
  run.pass(2);
  run.fail("b", 139);
  run.pass(10);
  EXPECT_EQ(run.order("a").kind(), Order::WAIT);
  EXPECT_THAT(run.news(), ::testing::Contains("waits for 1 more worker(s): 1 of 2 are there (5 of 20 s)"));
  run.pass(15);
  EXPECT_EQ(run.order("a").kind(), Order::EXIT);
  EXPECT_EQ(run.order("a").code(), 139);
}

TEST(Roster, WhoLeavesIsMissedAndOthersGoOn) {
  Agents run({.least = 1, .most = 2});
  run.join("a", 1);
  run.join("b", 1);
  run.pass(2);
  run.agent("b").set_leaving(true);
  run.pass();
  EXPECT_EQ(run.order("b").kind(), Order::EXIT);
  run.lose("b");
  run.pass(3);
  EXPECT_EQ(run.running(), "a1");
}

TEST(Roster, KnowsWhenAllHaveHeardTheEnd) {
  const AgentRoster::Time now;
  AgentRoster roster({.least = 1, .most = 2}, now);
  roster.exchange(report_of("a", 1), now);
  roster.exchange(report_of("b", 1), now);
  EXPECT_FALSE(roster.heard_by_all(now));
  roster.finish(3);
  EXPECT_EQ(roster.exchange(report_of("a", 1), now).code(), 3);
  EXPECT_FALSE(roster.heard_by_all(now));
  EXPECT_TRUE(roster.heard_by_all(now + seconds(6))) << "b is lost";
}

// A container's process 1 that is started anew has its predecessor's name.
TEST(Roster, AnAgentThatIsStartedAnewIsNotTheOneBefore) {
  AgentRoster::Time now{};
  AgentRoster roster({.least = 1, .most = 1, .last_call = seconds(0)}, now);
  Report first = report_of("a (pid 1)", 1, 1000);
  first.set_id(1);
  EXPECT_EQ(roster.exchange(first, now).kind(), Order::RUN);
  first.set_round(1);
  first.set_running(true);
  Report second = report_of("a (pid 1)", 1, 1000);
  second.set_id(2);
  Order order;
  for (int i = 0; i < 8; ++i) {
    now += seconds(1);
    order = roster.exchange(second, now);
    if (i < 3) {
      EXPECT_EQ(order.kind(), Order::WAIT) << "while the first may be alive";
      Report forged = second;
      forged.set_leaving(true);
      forged.set_id(3);
      (void)roster.exchange(forged, now);
    }
  }
  EXPECT_EQ(order.kind(), Order::RUN);
  EXPECT_EQ(order.round(), 2);
}

}  // namespace
}  // namespace cohort::cli::roster_test
