// PipelineRun: what all threads of one run of a pipeline share.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <c10/core/Stream.h>

#include <atomic>
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
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/spin.h"
#include "cohort/communicator.h"
#include "cohort/strategy.h"
#include "strategy/replica_scope.h"
#include "wings/pipeline/base/wake_place.h"
#include "wings/pipeline/strategy/chunk_backward.h"

namespace cohort {

// The ends of a replica's lines along axes that divide parameters, by axis. Each stage has its own.
using StageLines = std::map<std::string, std::unique_ptr<Communicator>, std::less<>>;

// Everything that changes is guarded by the mutex.
struct PipelineRun {
  std::shared_ptr<StrategyCore> core;
  std::shared_ptr<detail::Job> job;
  Replica& replica;
  std::chrono::milliseconds timeout;
  int chunks = 1;
  int threads = 1;     // of an operation
  bool spins = false;  // every stage has a core
  const std::vector<std::string>& cut;
  // The stages of this process among those of the line, and its end of the line where others have the rest.
  int all_stages = 1;
  int first_stage = 0;
  Communicator* line = nullptr;
  std::span<const StageLines> lines = {};  // [stage of this process], and behind them for the others
  c10::Stream device_stream;               // of the replica's own thread, and of all others that work for it
  bool watches = false;                    // whether passages note which tensors they use
  at::ThreadLocalState caller = {};

  // A piece of a loop that a stage without work of its own is asked for.
  struct Piece {
    enum class State { kAsked, kTaken, kDone };
    const std::function<void(int)>* loop = nullptr;
    int number = 0;
    std::atomic<State> state = State::kAsked;
    std::condition_variable done = {};
  };

  // What wakes a stage when something comes from another one, and where: on a core of its own, to which it calls the
  // functions, too.
  struct Stage {
    std::condition_variable wake = {};
    WakePlace place = {};
    std::deque<Piece*> pieces = {};           // that it is asked for
    bool has_begun = false;                   // with work of its own
    std::atomic<bool> is_called = false;      // since it began to wait
    Patience as_helper = {}, as_caller = {};  // of its thread; of the one that asks it

    void call() {
      is_called.store(true);
      place.bind();
      wake.notify_all();
    }
  };

  std::mutex mutex;
  std::deque<Stage> stages = {};       // of this process
  std::size_t ended = 0;               // of them
  std::exception_ptr error = nullptr;  // the first one
  std::vector<class Passage*> passages = {};
  // The replica's own stream, from which several microbatches are seeded, and their seeds. They are drawn when one asks
  // for a random number, so that an evaluation draws none.
  at::Generator stream = {};
  torch::Tensor seeds = {};
  std::optional<LaterStep> step = std::nullopt;
  std::unique_ptr<GradientSums> sums = nullptr;
  std::vector<std::function<void(const Replica&)>> at_end = {};

  // Guards the messages that are under way, and is held while one is sent: its parts follow each other, and two stages
  // may send to the same process.
  std::mutex sending = {};
  std::vector<Work<>> sends = {};

  // Returns how long a call waits at most: all that goes before it ends in time, or fails.
  std::chrono::milliseconds patience() const { return timeout * (3 * chunks * static_cast<int>(passages.size())); }
  // Returns whether a chunk is this process's.
  bool here(int chunk) const {
    const int stage = chunk % all_stages - first_stage;
    return stage >= 0 && stage < static_cast<int>(stages.size());
  }
  // Returns the rank on the line of the process that has a chunk.
  int process_of(int chunk) const { return chunk % all_stages / static_cast<int>(stages.size()); }
  Stage& stage_of(int chunk) { return stages[static_cast<std::size_t>(chunk % all_stages - first_stage)]; }
  uint64_t seed_of(std::size_t microbatch);
  // Notes an error and wakes everybody; other processes of the line hear of it.
  void fail_with(std::exception_ptr failure);
  void wake_all();

  // Calls loop(0) here and loop(1), ... on the threads of these stages of the process while they wait; what one of them
  // has not begun by the time that loop(0) is done is done here.
  void divide(const std::vector<int>& stages, const std::function<void(int)>& loop);
  // Waits as a stage until `is_over()`, and does the pieces that it is asked for meanwhile. One without work of its own
  // looks for them before it sleeps, because it would be late for most. Returns false if it is not over in time.
  template <typename IsOver>
  bool wait(Stage& own, std::condition_variable& wake, std::unique_lock<std::mutex>& lock, const Deadline& deadline,
            bool has_work, const IsOver& is_over) {
    bool in_time = true;
    while (in_time && !is_over()) {
      own.is_called.store(false);
      if (!has_work && own.pieces.empty()) {
        lock.unlock();
        spin_until([&] { return own.is_called.load(); }, spins, own.as_helper);
        lock.lock();
      }
      const auto is_called = [&] { return is_over() || !own.pieces.empty(); };
      if (!is_called()) {
        own.place.sleep();
        in_time = wake.wait_until(lock, deadline.when(), is_called);
        own.place.leave();
      }
      if (!own.pieces.empty()) help(own, lock);
    }
    return is_over();
  }
  // Does the piece that the calling stage is asked for; the lock of the mutex is given up meanwhile.
  void help(Stage& own, std::unique_lock<std::mutex>& lock) const;
  // A stage has done all of its own, and helps until all have.
  void end_stage(Stage& own);
};

}  // namespace cohort
