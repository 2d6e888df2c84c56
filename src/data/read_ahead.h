// ReadAhead: a queue that a thread fills ahead of its consumer; the core of prefetch() and of distributed input.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/trace.h"
#include "data/activity.h"

namespace cohort {

// Returns how long a thread of the library waits for one that may be stuck in a function of the user's, before it
// leaves it behind: `timeout`, or less if that has passed in vain already.
inline std::chrono::milliseconds patience(std::chrono::milliseconds timeout, bool was_late) {
  constexpr std::chrono::milliseconds kGrace = std::chrono::seconds(5);
  return was_late ? std::min(timeout, kGrace) : timeout;
}

// A queue with one producer thread and one consumer. `produce` returns the items and then nullopt. Its exception
// arrives at take(), after the items before it. The destructor ends the thread as soon as produce() returns; a thread
// that does not come back in time is left behind, so `produce` has to own all that it uses.
template <typename Item>
class ReadAhead {
 public:
  using Produce = std::function<std::optional<Item>()>;

  // `name` is a literal.
  ReadAhead(std::string_view name, std::size_t capacity, std::chrono::milliseconds timeout, Produce produce)
      : timeout_(timeout), shared_(std::make_shared<Shared>(name, capacity, std::move(produce))) {}
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead() {
    if (!thread_.joinable() || end_thread(patience(timeout_, shared_->activity->late()))) return;
    log().warn("[data] {}: its thread has not ended in time{}; it is left behind", shared_->name, stuck_in());
    thread_.detach();
  }

  // Returns the next item, or nullopt at the end. DeadlineExceeded: none came in time.
  std::optional<Item> take() {
    std::unique_lock lock(shared_->mutex);
    // A thread that was told to end, but not in time, has ended now.
    if (thread_.joinable() && !shared_->running && !shared_->ended) thread_.join();
    if (!thread_.joinable()) start();
    if (!shared_->has_news()) wait(lock);
    if (shared_->items.empty()) {
      if (shared_->error) std::rethrow_exception(std::exchange(shared_->error, nullptr));
      return std::nullopt;
    }
    std::optional<Item> item(std::move(shared_->items.front()));
    shared_->items.pop_front();
    lock.unlock();
    shared_->changed.notify_all();
    return item;
  }

  // Runs fn(items, ended) while the producer is stopped between two items. If the producer has failed its error is
  // thrown instead, and take() throws it as well. DeadlineExceeded: the producer does not finish its item in time.
  template <typename Fn>
  auto paused(const Fn& fn) {
    const std::unique_lock producing(shared_->producing, timeout_);
    if (!producing) fail_late("for it to stop");
    const std::lock_guard lock(shared_->mutex);
    if (shared_->error) std::rethrow_exception(shared_->error);
    return fn(shared_->items, shared_->ended);
  }

  // Ends the thread and forgets the items. take() starts it again. DeadlineExceeded: it does not end in time.
  void stop() {
    if (!end_thread(timeout_)) fail_late("for it to end");
    thread_ = {};
    shared_->items.clear();
    shared_->ended = false;
    shared_->error = nullptr;
  }

 private:
  // What the thread uses.
  struct Shared {
    Shared(std::string_view of, std::size_t most, Produce fn) : name(of), capacity(most), produce(std::move(fn)) {}

    bool has_news() const { return !items.empty() || ended; }

    std::string_view name;
    std::size_t capacity;
    Produce produce;
    std::shared_ptr<Activity> activity;  // of the thread
    std::timed_mutex producing;          // held while produce() runs; taken before the other one
    std::mutex mutex;
    std::condition_variable_any changed;
    std::deque<Item> items;
    bool ended = false;
    bool running = false;
    std::exception_ptr error;
  };

  void start() {
    shared_->running = true;
    std::stop_source source;
    shared_->activity = std::make_shared<Activity>(source.get_token());
    stop_ = source;
    thread_ = std::thread([shared = shared_, stop = source.get_token()] { run(*shared, stop); });
  }

  // Waits for an item or the end. A thread that is itself produced by says whom it waits for, and ends when it is told.
  void wait(std::unique_lock<std::mutex>& lock) {
    Activity* const own = Activity::of_thread();
    if (own != nullptr) own->wait_for(shared_->activity);
    const bool came = shared_->changed.wait_for(lock, own != nullptr ? own->stop() : std::stop_token(), timeout_,
                                                [&] { return shared_->has_news(); });
    if (own != nullptr) own->wait_for(nullptr);
    if (came) return;
    lock.unlock();
    throw_if_stopped();
    shared_->activity->mark_late();
    fail<DeadlineExceeded>("[data] ", shared_->name, ": waited ", to_text(timeout_),
                           " for the next element of its input", shared_->activity->reason(timeout_));
  }

  // Returns whether the thread has ended, or there is none.
  bool end_thread(std::chrono::milliseconds limit) {
    if (!thread_.joinable()) return true;
    stop_.request_stop();
    {
      std::unique_lock lock(shared_->mutex);  // the thread must not miss it between its test and its sleep
      shared_->changed.notify_all();
      if (!shared_->changed.wait_for(lock, limit, [&] { return !shared_->running; })) return false;
    }
    thread_.join();
    return true;
  }

  std::string stuck_in() const { return shared_->activity->reason(std::chrono::nanoseconds(0)); }

  [[noreturn]] void fail_late(const char* what) {
    shared_->activity->mark_late();
    fail<DeadlineExceeded>("[data] ", shared_->name, ": waited ", to_text(timeout_), " ", what, stuck_in());
  }

  static void run(Shared& shared, const std::stop_token& stop) {
    name_traced_thread(std::string(shared.name));
    Activity::of_thread() = shared.activity.get();
    while (produce_next(shared, stop)) {
    }
    Activity::of_thread() = nullptr;
    const std::lock_guard lock(shared.mutex);
    shared.running = false;
    shared.changed.notify_all();
  }

  // Returns whether there is more to do.
  static bool produce_next(Shared& shared, const std::stop_token& stop) {
    {
      std::unique_lock lock(shared.mutex);
      // The thread is idle while the consumer is slow. It wakes when there is room, or at the end.
      const auto room = [&] { return shared.items.size() < shared.capacity || stop.stop_requested(); };
      while (!shared.changed.wait_for(lock, std::chrono::seconds(1), room)) {
      }
      if (stop.stop_requested() || shared.ended) return false;
    }
    const std::lock_guard producing(shared.producing);
    std::optional<Item> item;
    std::exception_ptr error;
    try {
      item = shared.produce();
    } catch (...) {
      if (stop.stop_requested()) return false;
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(shared.mutex);
      if (item) {
        shared.items.push_back(std::move(*item));
      } else {
        shared.ended = true;
        shared.error = error;
      }
    }
    shared.changed.notify_all();
    return true;
  }

  std::chrono::milliseconds timeout_;
  std::shared_ptr<Shared> shared_;
  std::stop_source stop_{std::nostopstate};
  std::thread thread_;
};

}  // namespace cohort
