// ReadAhead: a queue that a thread fills ahead of its consumer; the core of prefetch() and of distributed input.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>

#include "base/deadline.h"
#include "base/fail.h"
#include "cohort/trace.h"

namespace cohort {

// A queue with one producer thread and one consumer. `produce` returns the items and then nullopt. Its exception
// arrives at take(), after the items before it. The destructor ends the thread as soon as produce() returns.
template <typename Item>
class ReadAhead {
 public:
  using Produce = std::function<std::optional<Item>()>;

  ReadAhead(std::string_view name, std::size_t capacity, std::chrono::milliseconds timeout, Produce produce)
      : name_(name), capacity_(capacity), timeout_(timeout), produce_(std::move(produce)) {}
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead() { stop(); }

  // Returns the next item, or nullopt at the end. DeadlineExceeded: none came in time.
  std::optional<Item> take() {
    std::unique_lock lock(mutex_);
    if (!thread_.joinable()) start();
    const auto ready = [&] { return !items_.empty() || ended_; };
    if (!changed_.wait_for(lock, timeout_, ready)) {
      fail<DeadlineExceeded>("[data] ", name_, ": waited ", to_text(timeout_), " for the next element of its input");
    }
    if (items_.empty()) {
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      return std::nullopt;
    }
    std::optional<Item> item(std::move(items_.front()));
    items_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

  // Runs fn(items, ended) while the producer is stopped between two items. If the producer has failed its error is
  // thrown instead, and take() throws it as well.
  template <typename Fn>
  auto paused(const Fn& fn) {
    const std::scoped_lock lock(producing_, mutex_);
    if (error_) std::rethrow_exception(error_);
    return fn(items_, ended_);
  }

  // Ends the thread and forgets the items. take() starts it again.
  void stop() {
    thread_.request_stop();
    { const std::lock_guard lock(mutex_); }  // the thread must not miss it between its test and its sleep
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    thread_ = {};
    items_.clear();
    ended_ = false;
    error_ = nullptr;
  }

 private:
  void start() {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  void run(const std::stop_token& stop) {
    name_traced_thread(std::string(name_));
    while (true) {
      {
        std::unique_lock lock(mutex_);
        // The thread is idle while the consumer is slow. It wakes when there is room, or at the end.
        const auto room = [&] { return items_.size() < capacity_ || stop.stop_requested(); };
        while (!changed_.wait_for(lock, std::chrono::seconds(1), room)) {
        }
        if (stop.stop_requested() || ended_) return;
      }
      const std::lock_guard producing(producing_);
      std::optional<Item> item;
      std::exception_ptr error;
      try {
        item = produce_();
      } catch (...) {
        error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        if (item) {
          items_.push_back(std::move(*item));
        } else {
          ended_ = true;
          error_ = error;
        }
      }
      changed_.notify_all();
    }
  }

  std::string_view name_;
  std::size_t capacity_;
  std::chrono::milliseconds timeout_;
  Produce produce_;
  std::mutex producing_;  // held while produce() runs; taken before mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool ended_ = false;
  std::exception_ptr error_;
  std::jthread thread_;
};

}  // namespace cohort
