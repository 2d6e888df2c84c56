// ModelChief: a coordinator of the model (model.h): the keeper of the servers, the queue of the work, and the program
// that schedules it, saves once and reads the result.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/model_message.h"
#include "wings/parameter_server/coordinator/roster.h"

namespace cohort::simulation {

// What survives a coordinator.
struct ModelDisk {
  uint64_t epoch = 0;
  int64_t next = 0;  // the closure before which the checkpoint has everything
  model::Counts counts{};
};

class ModelChief {
 public:
  using Message = model::Message;
  using Flight = model::Flight;
  enum class Work { kNone, kQueued, kRunning, kDone };
  enum class Program { kRuns, kCollects, kWrites, kForgets };

  ModelChief(int number, const ModelOptions& options)
      : number_(number),
        options_(options),
        roster_({.servers = options.servers, .replicas = options.replicas, .run = 1}) {}

  bool begun() const { return epoch_ > 0; }
  bool fenced() const { return fenced_; }
  bool done() const { return done_; }
  const model::View& view() const { return view_; }
  const std::string& violation() const { return violation_; }

  // -- The servers.

  // Returns whether there is news of a server.
  bool has_news(int server, const ServerFence& fence) const;
  void hear_of(int server, const ServerFence& fence);
  bool up(int server) const { return roster_.up(server); }
  void lose(int server) { roster_.lose(server); }
  // Begins. It has heard of all servers.
  void begin(ModelDisk& disk);
  // Returns whether the roster wants something.
  bool may_act() const;
  void act(Flight& flight);
  void hear(const Message& answer);

  // -- The program.

  bool may_schedule() const;
  bool has_scheduled() const { return scheduled_ > 0; }
  void schedule() { jobs_.at(static_cast<std::size_t>(scheduled_++)).state = Work::kQueued; }
  bool may_collect() const;
  void collect(Flight& flight);
  bool may_write() const { return !fenced_ && program_ == Program::kWrites; }
  void write(ModelDisk& disk);
  bool may_tell(const Flight& flight) const;
  void tell(Flight& flight);

  // -- The worker.

  // Gives out a closure, and the number of the attempt. Nothing: there is none.
  std::optional<std::pair<int64_t, int>> take();
  void finish(int64_t closure, int attempt);

  // What its worker has: a closure, or -1, and the number of the attempt.
  struct Given {
    int64_t closure = -1;
    int attempt = 0;
  };
  // `given`: null if the worker is another coordinator's.
  void put_in(KnownNumbers& numbers, const Given* given) const;

 private:
  struct Job {
    Work state = Work::kNone;
    bool again = false;
    int attempt = 0;
  };

  bool idle() const;
  bool is_all_done() const;
  bool serves_all(const Roster& roster, RosterAction::Kind next) const;
  void publish(Flight& flight);
  void published();
  void hear_state(const Message& answer);
  bool replay();
  model::Order order(uint64_t process = 0) const { return model::order_of(epoch_, roster_.view().number(), process); }

  int number_;
  ModelOptions options_;
  bool fenced_ = false;
  bool done_ = false;
  uint64_t epoch_ = 0;  // 0: not begun
  Roster roster_;
  bool started_ = false;
  RosterAction doing_;  // kNone: nothing
  model::View publishing_;
  int open_ = 0;         // number of answers that are awaited
  model::View view_;     // what the worker is told
  uint64_t serial_ = 1;  // of fills, as ModelServer's of copies
  int64_t source_next_ = 0;
  model::Counts source_{};
  int64_t fill_from_ = 0;
  int64_t kept_from_ = 0;
  int64_t scheduled_ = 0;
  std::array<Job, model::kMostClosures> jobs_{};
  Program program_ = Program::kRuns;
  uint64_t collect_view_ = 0;
  std::vector<int> to_tell_;  // the servers that are told what to forget, the next one last
  bool has_saved_ = false;
  model::Counts collected_{};
  std::string violation_;
};

}  // namespace cohort::simulation
