// Activity: what a thread that produces elements is doing, for the thread that waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

#include "base/fail.h"

namespace cohort {

// The names are string literals. Thread-safe.
class Activity {
 public:
  // Returns the activity of this thread, or null if nobody waits for it.
  static Activity*& of_thread() {
    static thread_local Activity* activity = nullptr;
    return activity;
  }

  explicit Activity(std::stop_token stop = {}) : stop_(std::move(stop)) {}

  const std::stop_token& stop() const { return stop_; }
  uint64_t calls() const { return calls_; }

  // Returns what keeps the thread from an element, as the end of a message; empty if it is only slow. `calls` is
  // calls() at the beginning of the wait.
  std::string reason(uint64_t calls) const {
    {
      const std::lock_guard lock(mutex_);
      if (waits_for_) return waits_for_->reason(waits_since_);
    }
    const char* const function = function_;
    if (function != nullptr && calls == calls_) return std::string(": ") + function + " has not returned";
    const char* const search = search_;
    return search != nullptr ? std::string(": ") + search : "";
  }

  // Notes that a wait for this thread was in vain, and so for those that it waits for.
  void mark_late() const {
    late_ = true;
    const std::lock_guard lock(mutex_);
    if (waits_for_) waits_for_->mark_late();
  }
  bool late() const { return late_; }

  // Notes that this thread waits for another one; null: no longer.
  void wait_for(std::shared_ptr<const Activity> other) {
    const std::lock_guard lock(mutex_);
    waits_since_ = other ? other->calls() : 0;
    waits_for_ = std::move(other);
  }

 private:
  friend class Calling;
  friend class Searching;

  std::stop_token stop_;
  std::atomic<const char*> function_ = nullptr;  // the user's function that runs
  std::atomic<uint64_t> calls_ = 0;              // begins and ends of such functions
  std::atomic<const char*> search_ = nullptr;    // a loop that may not find an element
  mutable std::atomic<bool> late_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<const Activity> waits_for_;
  uint64_t waits_since_ = 0;
};

// Notes, while it lives, that this thread runs a function of the user's.
class Calling {
 public:
  explicit Calling(const char* function) : activity_(Activity::of_thread()) {
    if (activity_ == nullptr) return;
    outer_ = activity_->function_.exchange(function, std::memory_order_relaxed);
    activity_->calls_.fetch_add(1, std::memory_order_relaxed);
  }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;
  ~Calling() {
    if (activity_ == nullptr) return;
    activity_->calls_.fetch_add(1, std::memory_order_relaxed);
    activity_->function_.store(outer_, std::memory_order_relaxed);
  }

 private:
  Activity* activity_;
  const char* outer_ = nullptr;
};

// Notes, while it lives, that this thread looks for an element that may not come.
class Searching {
 public:
  explicit Searching(const char* search) : activity_(Activity::of_thread()) {
    if (activity_ != nullptr) outer_ = activity_->search_.exchange(search, std::memory_order_relaxed);
  }
  Searching(const Searching&) = delete;
  Searching& operator=(const Searching&) = delete;
  ~Searching() {
    if (activity_ != nullptr) activity_->search_.store(outer_, std::memory_order_relaxed);
  }

 private:
  Activity* activity_;
  const char* outer_ = nullptr;
};

// Throws Cancelled if this thread has been told to end. Every source asks for each element, so that no loop over an
// endless pipeline keeps a thread.
inline void throw_if_stopped() {
  const Activity* const activity = Activity::of_thread();
  if (activity != nullptr && activity->stop().stop_requested()) fail<Cancelled>("[data] the iterator has ended");
}

}  // namespace cohort
