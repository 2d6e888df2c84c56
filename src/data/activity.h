// Activity: what a thread that produces elements is doing, for the thread that waits for it.
#pragma once

#include <atomic>
#include <chrono>
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

  // Returns what keeps the thread from an element, as the end of a message; empty if it is only slow. Within a search
  // only a function counts that has run for most of the time that somebody has waited.
  std::string reason(std::chrono::nanoseconds waited) const {
    {
      const std::lock_guard lock(mutex_);
      if (waits_for_) return waits_for_->reason(waited);
    }
    const char* const function = function_;
    const char* const search = search_;
    if (function != nullptr && (search == nullptr || 2 * (now() - since_) >= waited.count())) {
      return std::string(": ") + function + " has not returned";
    }
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
    waits_for_ = std::move(other);
  }

 private:
  friend class Calling;
  friend class Searching;

  // Returns the time in nanoseconds.
  static int64_t now() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

  std::stop_token stop_;
  std::atomic<const char*> function_ = nullptr;  // the user's function that runs
  std::atomic<int64_t> since_ = 0;               // the time at which it was called
  std::atomic<const char*> search_ = nullptr;    // a loop that may not find an element
  mutable std::atomic<bool> late_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<const Activity> waits_for_;
};

// Notes, while it lives, that this thread runs a function of the user's.
class Calling {
 public:
  explicit Calling(const char* function) : activity_(Activity::of_thread()) {
    if (activity_ == nullptr) return;
    outer_since_ = activity_->since_.exchange(Activity::now(), std::memory_order_relaxed);
    outer_ = activity_->function_.exchange(function, std::memory_order_relaxed);
  }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;
  ~Calling() {
    if (activity_ == nullptr) return;
    activity_->function_.store(outer_, std::memory_order_relaxed);
    activity_->since_.store(outer_since_, std::memory_order_relaxed);
  }

 private:
  Activity* activity_;
  const char* outer_ = nullptr;
  int64_t outer_since_ = 0;
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
