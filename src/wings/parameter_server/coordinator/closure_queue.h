// ClosureQueue: the work of a coordinator: which closures are waiting, which worker runs which, and which have ended
// since the last checkpoint. It knows nothing of the network.
//
// A closure runs at least once. Its id is the same whenever it runs, so that servers apply its updates once.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/draw.h"
#include "cohort/cluster/consistency.h"
#include "wings/parameter_server/coordinator/closure_table.h"
#include "wings/parameter_server/coordinator/remote_value_state.h"

namespace cohort {

struct ClosureQueueOptions {
  Consistency consistency = {};
  std::size_t capacity = std::size_t{256}
                         << 10;  // closures that wait to be taken; schedule() waits while there are so many
  // The number of finished closures that are kept, to be repeated when a server comes back with the values of a
  // checkpoint.
  std::size_t log_closures = 100'000;
  std::size_t log_bytes = std::size_t{1} << 30;
  // The time that schedule() and join() wait while no closure begins or ends.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

// Thread-safe.
class ClosureQueue {
 public:
  static constexpr uint64_t kPresent = 0;  // the attempt by which the worker has a closure now

  explicit ClosureQueue(const ClosureQueueOptions& options);

  // Sets the function that is called, without locks, whenever there may be a closure to take.
  void on_change(std::function<void()> callback);

  // -- The user's side.

  // Schedules one closure for each list of arguments. In synchronous training they are the shares of one step, with
  // these weights (empty: equal ones). Throws the first error of earlier closures, once no closure is running any more;
  // waiting closures are cancelled then.
  std::vector<std::shared_ptr<RemoteValueState>> schedule(const std::string& step,
                                                          std::vector<std::vector<torch::Tensor>> shares,
                                                          const std::vector<double>& weights = {});
  // Waits until all closures are done. Throws as above, and DeadlineExceeded if nothing happens for options.timeout.
  void join();
  bool done();

  // Notes that the user has changed variables, which closures that are scheduled from now on have to see.
  void note_change();

  // Returns the id of the next closure to be scheduled.
  int64_t next_id() const;
  // Sets that id. Has to be called before the first closure is scheduled.
  void begin_at(int64_t id);
  // Returns the id before which all closures are done.
  int64_t done_below() const;

  // -- The workers' side.

  // Takes a worker in. `session` tells its stays apart, and grows with each of them.
  void add_worker(int worker, uint64_t session = 0);
  // Ends the worker's stay and puts the closures that it held back into the queue. Nothing happens if a later session
  // has begun meanwhile.
  void lose_worker(int worker, uint64_t session = UINT64_MAX);
  // Returns the next closure for the worker, or nothing if none is ready. With `sparingly` a busy worker gets one only
  // while there are enough for all and the order does not matter.
  std::optional<Closure> take(int worker, bool sparingly = false);
  // Puts back the closures that the worker took and does not hold, because an answer was lost on its way.
  void keep_only(int worker, const std::set<int64_t>& holding);

  // The next three end what the worker does with a closure. Nothing happens unless the worker has it by this attempt: a
  // report that is late, because it was sent again, says nothing of a closure that has to be repeated since then, by
  // this coordinator or the next one.

  void finish(int worker, int64_t id, std::vector<torch::Tensor> result, uint64_t attempt = kPresent);
  // Notes that the worker leaves a closure to another worker that was faster.
  void leave(int worker, int64_t id, uint64_t attempt = kPresent);
  void finish_with(int worker, int64_t id, const std::exception_ptr& error, uint64_t attempt = kPresent);

  // -- The servers' side.

  // Schedules everything from this closure on that was begun again. Returns false if some of it is not kept any more:
  // forget_before() was called for a later closure, or too much was done.
  bool replay(int64_t from);
  // Forgets the closures before this id, because a checkpoint contains them.
  void forget_before(int64_t id);
  // Notes an error that no closure met and that ends the run: another coordinator is in charge, or a server stays away.
  // All closures are cancelled, those that run, too, because their workers may wait for servers that will not take
  // their updates. The next schedule() or join() throws the error.
  void fail(const std::exception_ptr& error);

 private:
  using Lock = std::unique_lock<std::mutex>;

  using Entry = ClosureTable::Entry;
  using State = ClosureTable::State;

  Entry* held(int worker, int64_t id, uint64_t attempt);
  void release(Entry& entry);
  bool end_session(int worker, uint64_t session);
  void put_back(int worker, const std::set<int64_t>& holding);
  void requeue(Entry& entry);
  void complete(Entry& entry);
  void cancel(std::set<int64_t>& ids);
  void drop_log();
  void wait(Lock& lock, const char* what, const std::function<bool()>& until);
  void raise_error(Lock& lock, const char* what);
  std::string who_runs() const;
  void changed();

  const ClosureQueueOptions options_;
  std::function<void()> on_change_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  uint64_t events_ = 0;  // counts every take, finish and arrival
  int64_t next_id_ = 0;
  int64_t next_group_ = 0;
  uint64_t attempts_ = draw_number() >> 1U;  // the last one; not those of another coordinator with the same closures
  int64_t changes_ = 0;                      // counts the closures that have ended and the user's own changes
  ClosureTable table_;
  std::exception_ptr error_;
  std::size_t logged_ = 0;  // the number of finished entries
  std::size_t logged_bytes_ = 0;
  int64_t kept_from_ = 0;  // finished closures from this id on are all in table_.entries
};

}  // namespace cohort
