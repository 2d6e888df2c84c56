// ClosureQueue: the work of a coordinator: what is to be done, who is doing it, and what has been done since the last
// checkpoint. Knows nothing of the network.
//
// A closure runs at least once. Its id is the same whenever it runs, so that servers apply its updates once.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/cluster/consistency.h"
#include "parameter_server/coordinator/remote_value_state.h"
#include "parameter_server/server/pending_steps.h"

namespace cohort {

struct Closure {
  int64_t id = 0;
  std::string step;  // a registered function's name
  std::vector<torch::Tensor> arguments;
  Share share;          // of a synchronous step
  double weight = 1.0;  // the part of the step's examples that are in it
  bool exact = false;   // with the values that the step begins with; whoever cannot have them leaves it to others
  int64_t after = 0;    // changes that were known when it was scheduled: it has to see these
};

struct ClosureQueueOptions {
  Consistency consistency = {};
  std::size_t capacity = std::size_t{256} << 10;  // scheduled and not begun; schedule() waits for room
  // Of done work, kept to be done again when a server comes back with what a checkpoint had.
  std::size_t log_closures = 100'000;
  std::size_t log_bytes = std::size_t{1} << 30;
  // How long schedule() and join() wait while nothing happens at all.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

// Thread-safe.
class ClosureQueue {
 public:
  explicit ClosureQueue(const ClosureQueueOptions& options);

  // Called, without locks, whenever there may be something to take.
  void on_change(std::function<void()> callback);

  // -- The user's side.

  // One closure for each list of arguments; in synchronous training they are the shares of one step, with these weights
  // (empty: alike). Throws the first error of earlier closures, once nothing is running any more; what was queued then
  // is cancelled.
  std::vector<std::shared_ptr<RemoteValueState>> schedule(const std::string& step,
                                                          std::vector<std::vector<torch::Tensor>> shares,
                                                          const std::vector<double>& weights = {});
  // Returns when all is done; errors as above. DeadlineExceeded: nothing has happened for options.timeout.
  void join();
  bool done();

  // The user has changed variables: what is scheduled from now on has to see it.
  void note_change();

  // The id of the next closure to be scheduled. To be set before the first one.
  int64_t next_id() const;
  void begin_at(int64_t id);
  // All before this one are done.
  int64_t done_below() const;

  // -- The workers' side.

  void add_worker(int worker);
  // What it was doing is for others to do.
  void lose_worker(int worker);
  // Nothing: there is nothing for it now. Sparingly: nor while it has something to do, unless there is enough for all,
  // and the order does not matter.
  std::optional<Closure> take(int worker, bool sparingly = false);
  // What it took and does not have (an answer that was lost on the way).
  void keep_only(int worker, const std::set<int64_t>& holding);
  void finish(int worker, int64_t id, std::vector<torch::Tensor> result);
  // It was overtaken by another worker that does the same.
  void leave(int worker, int64_t id);
  void finish_with(int worker, int64_t id, const std::exception_ptr& error);

  // -- The servers' side.

  // All that was begun since the last checkpoint is to be done again. False: too much to remember was done since.
  bool replay();
  // There is a checkpoint of all work before this id.
  void forget_before(int64_t id);
  // An error that no closure met: for the next schedule() or join().
  void fail(const std::exception_ptr& error);

 private:
  enum class State { kQueued, kRunning, kDone };
  struct Entry {
    Closure closure;
    std::shared_ptr<RemoteValueState> value;
    int64_t group = 0;
    State state = State::kQueued;
    std::set<int> runners;
    bool again = false;  // when it is done, it is to be done once more
    bool made = false;   // its update, or a part of it: there is no use in doing it twice
  };
  struct Worker {
    int64_t steps = 0;
    int running = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  std::optional<int64_t> pick(int worker) const;
  std::optional<int64_t> pick_to_double(int worker) const;
  int64_t first_group() const;
  bool too_far_ahead(const Worker& worker) const;
  void requeue(Entry& entry);
  void complete(Entry& entry);
  void cancel_queued();
  void drop_log();
  void wait(Lock& lock, const char* what, const std::function<bool()>& until);
  void raise_error(Lock& lock, const char* what);
  std::string who_runs() const;
  void changed();

  const ClosureQueueOptions options_;
  std::function<void()> on_change_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  uint64_t events_ = 0;  // every take, finish and arrival
  int64_t next_id_ = 0;
  int64_t next_group_ = 0;
  int64_t changes_ = 0;               // closures that have ended, and the user's own changes
  std::map<int64_t, Entry> entries_;  // by id: what is open, and the log of what is done
  std::set<int64_t> queued_;
  std::set<int64_t> running_;
  std::map<int, Worker> workers_;
  std::exception_ptr error_;
  std::size_t logged_ = 0;  // done entries
  std::size_t logged_bytes_ = 0;
  bool log_whole_ = true;
};

}  // namespace cohort
