// AgentRoster: the leader's list of the launchers (agents) of an elastic run. It decides which workers run, which have
// to end and which agents are lost. It reads no clock: times come as arguments. Not thread-safe.
//
// A run is a sequence of rounds. A round has the workers that are there, at most `most`. It ends when one of them
// fails, when an agent is not heard of any more, or when new workers could be taken in; then all are asked to end,
// which makes them save (BackupAndRestore's save_before_preemption), and the next round begins with those that are
// left.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/wait_reporting.h"
#include "cluster/liveness.h"
#include "rendezvous.pb.h"
#include "wings/launch/elastic/lease.h"

namespace cohort::cli {

using rendezvous::Order;
using rendezvous::Report;

// Returns what is wrong in a report from another machine, or nothing if it is valid.
std::optional<std::string> misfit(const Report& report);
// Returns the same of an order to an agent that can start `nproc` workers.
std::optional<std::string> misfit(const Order& order, int nproc);

struct AgentRosterOptions {
  int least = 1;  // the fewest workers of a round
  int most = 1;
  std::chrono::milliseconds silence = std::chrono::seconds(5);  // the silence after which an agent is lost
  std::chrono::milliseconds lease = kLeaseAtLeader;  // the silence after which workers of an agent do not run any more
  std::chrono::milliseconds settle = std::chrono::seconds(8);     // the time that a failure's cause may take to show
  std::chrono::milliseconds last_call = std::chrono::seconds(2);  // the wait for others after one has joined
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);  // the longest wait for `least` workers
};

class AgentRoster {
 public:
  using Time = Liveness::Time;

  AgentRoster(const AgentRosterOptions& options, Time now)
      : options_(options), wait_(wait_for_workers(now)), last_join_(now) {}

  Order exchange(const Report& report, Time now);
  // Ends the run on all agents.
  void finish(int code);
  // Returns whether the run is over and every agent knows it or is lost.
  bool heard_by_all(Time now);
  // Returns the events since the last call, for the log.
  std::vector<std::string> take_news();

 private:
  struct Agent {
    Report report;
    Liveness alive;
    int given = 0;  // the number of its workers in the round; 0: it takes no part
    int first_rank = 0;
    int group = 0;
    bool ended = false;
    bool told_exit = false;
    int64_t failure = 0;  // the position of its failure in the round; 0: none
  };

  static bool is_from(const Agent& agent, const Report& report);
  Agent& agent_of(const Report& report, Time now);
  void hear(Agent& agent, const Report& report, Time now);
  void drop_silent(Time now);
  void advance(Time now);
  void close_round(Time now);
  void blame();
  void open_round(Time now);
  WaitReport wait_for_workers(Time now) const;
  void wait_for_more(int there, Time now);
  bool any_killed() const;
  bool newcomers() const;
  bool old_workers_may_run(Time now) const;
  int total() const;
  Order order_for(const Agent& agent) const;
  void note(std::string text) { news_.push_back(std::move(text)); }

  AgentRosterOptions options_;
  std::vector<Agent> agents_;  // the agents in the order of joining
  int64_t round_ = 0;
  bool running_ = false;
  bool ending_ = false;  // the round's workers were told to end
  bool lost_ = false;    // the round has lost an agent
  Time leases_end_{};    // the end of the leases of lost agents
  int64_t failures_ = 0;
  Time first_failure_;
  WaitReport wait_;  // the wait for enough workers since the last round ended
  Time last_join_;
  int world_ = 0;
  int last_code_ = 1;
  std::optional<int> finished_;
  std::vector<std::string> news_;
};

}  // namespace cohort::cli
