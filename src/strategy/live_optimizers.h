// LiveOptimizers: the optimizers of a strategy that are alive, as far as a run() has to know of them.
#pragma once

#include <mutex>
#include <vector>

namespace cohort {

// Base of what a strategy reaches of an optimizer (step/step.h).
class LiveOptimizer {
 public:
  virtual ~LiveOptimizer() = default;
  // Drops what a run() that failed has left of a step: gradients in parameters, and messages that were begun.
  virtual void drop_step() = 0;
};

// Thread-safe, but for several().
class LiveOptimizers {
 public:
  // Returns the number of the optimizer among those of the strategy, from 1.
  int add(LiveOptimizer& optimizer) {
    const std::lock_guard lock(mutex_);
    alive_.push_back(&optimizer);
    return ++made_;
  }
  void remove(const LiveOptimizer& optimizer) {
    const std::lock_guard lock(mutex_);
    std::erase(alive_, &optimizer);
  }

  // Notes at the beginning of a run() how many there are, so that all replicas go by the same answer.
  void begin_run() {
    const std::lock_guard lock(mutex_);
    several_ = alive_.size() > 1;
  }
  // Returns whether there were several at the beginning of this run(). A loss may reach the parameters of each then.
  bool several() const { return several_; }

  // Returns those that are alive.
  std::vector<LiveOptimizer*> alive() {
    const std::lock_guard lock(mutex_);
    return alive_;
  }

  // To be called when no replica runs.
  void drop_steps() {
    const std::lock_guard lock(mutex_);
    for (LiveOptimizer* const each : alive_) each->drop_step();
  }

 private:
  std::mutex mutex_;
  std::vector<LiveOptimizer*> alive_;
  int made_ = 0;
  bool several_ = false;
};

}  // namespace cohort
