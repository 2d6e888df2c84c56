// Passes over a dataset, each of which has a number.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "cohort/dataset.h"

namespace cohort {

class StrategyCore;

// Numbers the passes that begin without a number of their own, from 0. Thread-safe.
class PassCounter {
 public:
  int64_t begin() { return next_++; }
  // Takes over the pass of a restored iterator, so that later passes follow it as they would have without the
  // interruption.
  void resume(int64_t pass) {
    int64_t next = next_;
    while (next <= pass && !next_.compare_exchange_weak(next, pass + 1)) {
    }
  }

 private:
  std::atomic<int64_t> next_ = 0;
};

// The counters of a dataset. The passes under a strategy have a counter of their own, because all workers begin the
// same ones; a pass that one worker makes alone, such as a look at the data, must not change its order.
class PassCounters {
 public:
  const std::shared_ptr<PassCounter>& plain() const { return plain_; }
  // Returns the counter for passes under a strategy. Thread-safe.
  std::shared_ptr<PassCounter> under(const std::shared_ptr<StrategyCore>& strategy) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<PassCounter>& counter = distributed_[strategy];
    if (!counter) counter = std::make_shared<PassCounter>();
    return counter;
  }

 private:
  std::shared_ptr<PassCounter> plain_ = std::make_shared<PassCounter>();
  std::mutex mutex_;
  std::map<std::weak_ptr<StrategyCore>, std::shared_ptr<PassCounter>, std::owner_less<>> distributed_;
};

// One pass. Its number comes from the options or, with kAuto, from the counter.
class Pass {
 public:
  // Begins a pass. InvalidArgument: the epoch is negative.
  Pass(const IteratorOptions& options, std::shared_ptr<PassCounter> counter);

  const IteratorOptions& options() const { return options_; }

  // Adds the pass to the position of an iterator, if it was counted.
  nlohmann::json save(nlohmann::json position) const;
  // Gives the position to restore_position(), and takes over the pass if that succeeds.
  template <typename RestorePosition>
  void restore(const nlohmann::json& saved, RestorePosition&& restore_position) {
    const std::optional<int64_t> pass = saved_pass(saved);
    restore_position(pass ? saved.at("position") : saved);
    if (!pass || !counter_) return;
    counter_->resume(*pass);
    options_.epoch = *pass;
  }

 private:
  // Returns the pass in a saved position. InvalidArgument: it is negative.
  static std::optional<int64_t> saved_pass(const nlohmann::json& saved);

  IteratorOptions options_;
  std::shared_ptr<PassCounter> counter_;  // null if the options gave the number
};

}  // namespace cohort
