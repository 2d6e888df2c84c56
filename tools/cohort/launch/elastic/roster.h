// Roster: the leader's list of the launchers (agents) of an elastic run, and its decisions: who runs, who has to end,
// who is taken as lost. Pure: time comes in as an argument. Not thread-safe.
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

namespace cohort::cli {

// What an agent tells again and again.
struct Report {
  std::string agent;  // a name of its own
  std::string host;   // where other machines reach it
  int port = 0;       // free there, for worker 0 should it get it
  int workers = 0;    // that it can start; heard when it joins
  int64_t round = 0;  // the last one it took part in; 0: none yet
  bool running = false;
  // How that round ended here.
  bool asked = false;      // it was told to end it
  bool by_signal = false;  // the first worker that failed was killed
  int code = 0;            // of the first worker that failed; 0: all went well
  bool leaving = false;    // it takes part no more
};

struct Order {
  enum class Kind {
    kWait,
    kRun,   // the round `round`, if it does not do so yet
    kEnd,   // its workers are to end
    kExit,  // with `code`: the run is over
  };
  Kind kind = Kind::kWait;
  int64_t round = 0;
  int first_rank = 0;
  int workers = 0;  // of this agent
  int world = 0;
  int group = 0;  // this agent's number in the round
  std::string master_host;
  int master_port = 0;
  int code = 0;
};

struct RosterOptions {
  int least = 1;  // workers, without which nothing runs
  int most = 1;
  std::chrono::milliseconds silence = std::chrono::seconds(5);        // after which an agent is lost
  std::chrono::milliseconds settle = std::chrono::seconds(8);         // how long a failure's cause may take to show
  std::chrono::milliseconds last_call = std::chrono::seconds(2);      // for others, after one has joined
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);  // of the wait for `least` workers
};

class Roster {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Roster(const RosterOptions& options, Time now) : options_(options), waiting_since_(now), last_join_(now) {}

  Order exchange(const Report& report, Time now);
  // Ends the run on all agents.
  void finish(int code);
  // Whether the run is over and every agent has heard it, or is lost.
  bool heard_by_all(Time now);
  // What has happened since the last call, for the log.
  std::vector<std::string> take_news();

 private:
  struct Agent {
    Report report;
    Time heard;
    int given = 0;  // workers in the round; 0: it takes no part
    int first_rank = 0;
    int group = 0;
    bool ended = false;
    bool told_exit = false;
    int64_t failure = 0;  // its place among the round's failures; 0: none
  };

  Agent& agent_of(const Report& report, Time now);
  void hear(Agent& agent, const Report& report, Time now);
  void drop_silent(Time now);
  void advance(Time now);
  void close_round(Time now);
  void blame();
  void open_round(Time now);
  bool any_killed() const;
  bool newcomers() const;
  int total() const;
  Order order_for(const Agent& agent) const;
  void note(std::string text) { news_.push_back(std::move(text)); }

  RosterOptions options_;
  std::vector<Agent> agents_;  // in the order in which they joined
  int64_t round_ = 0;
  bool running_ = false;
  bool ending_ = false;  // the round's workers were told to end
  bool lost_ = false;    // an agent of the round
  int64_t failures_ = 0;
  Time first_failure_;
  Time waiting_since_;
  Time last_join_;
  int world_ = 0;
  int last_code_ = 1;
  std::optional<int> finished_;
  std::vector<std::string> news_;
};

}  // namespace cohort::cli
