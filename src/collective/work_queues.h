// WorkQueues: the threads in which a communicator's asynchronous operations run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace cohort {

// One thread, started with the first operation, that does one after the other.
class WorkQueue {
 public:
  WorkQueue() = default;
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  // Waits for what is under way. An operation has to keep what it throws.
  ~WorkQueue();

  void push(std::function<void()> operation);
  // Returns when all that was pushed has ended; at once in the queue's own thread.
  void settle();
  // Returns whether the caller is an operation of any queue.
  static bool in_operation();

 private:
  void work();
  bool inside() const { return thread_id_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

  std::atomic<std::size_t> pending_ = 0;  // operations, the one in progress included
  std::atomic<std::thread::id> thread_id_ = {};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> operations_;
  bool closed_ = false;
  std::thread thread_;
};

// The last member of a communicator: its destructor waits for operations that use the others.
class WorkQueues {
 public:
  WorkQueues() : collectives_(&own_) {}
  // Makes queues whose collectives are those of another communicator, which must outlive these.
  explicit WorkQueues(WorkQueue& collectives) : collectives_(&collectives) {}
  WorkQueues(const WorkQueues&) = delete;
  WorkQueues& operator=(const WorkQueues&) = delete;
  ~WorkQueues() { collectives_->settle(); }

  // Returns the queue of the collectives.
  WorkQueue& collectives() { return *collectives_; }
  // Returns the queue of the messages to a rank, or from it.
  WorkQueue& messages(int peer, bool sends);

 private:
  WorkQueue own_;
  WorkQueue* collectives_;
  std::mutex mutex_;
  std::map<std::pair<int, bool>, WorkQueue> messages_;
};

}  // namespace cohort
