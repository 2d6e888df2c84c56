// Passes over a dataset: which one an iterator is.
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
  // The pass of a restored iterator: those that begin from now on come after it, as they would have without the break.
  void resume(int64_t pass) {
    int64_t next = next_;
    while (next <= pass && !next_.compare_exchange_weak(next, pass + 1)) {
    }
  }

 private:
  std::atomic<int64_t> next_ = 0;
};

// A dataset's counters. Passes under a strategy are counted by themselves: all workers begin the same ones, and a pass
// that one worker makes alone, say to look at the data, must not give it another order than the others have.
class PassCounters {
 public:
  const std::shared_ptr<PassCounter>& plain() const { return plain_; }
  // Thread-safe.
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

// One pass: its number is given by the options or, with kAuto, by the counter.
class Pass {
 public:
  // InvalidArgument: a negative epoch.
  Pass(const IteratorOptions& options, std::shared_ptr<PassCounter> counter);

  const IteratorOptions& options() const { return options_; }

  // Adds the pass, where it was counted, to an iterator's position.
  nlohmann::json save(nlohmann::json position) const;
  // Gives the position to restore_position(), and takes the pass over when that has succeeded.
  template <typename RestorePosition>
  void restore(const nlohmann::json& saved, RestorePosition&& restore_position) {
    const std::optional<int64_t> pass = saved_pass(saved);
    restore_position(pass ? saved.at("position") : saved);
    if (!pass || !counter_) return;
    counter_->resume(*pass);
    options_.epoch = *pass;
  }

 private:
  // InvalidArgument: it is negative.
  static std::optional<int64_t> saved_pass(const nlohmann::json& saved);

  IteratorOptions options_;
  std::shared_ptr<PassCounter> counter_;  // null: the number was given
};

}  // namespace cohort
