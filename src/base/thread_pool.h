// ThreadPool: a fixed number of threads that run tasks in the order of submission.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace cohort {

// Thread-safe. An exception of a task arrives at its future. The destructor drops the tasks that have not begun (their
// futures get broken_promise) and waits for those that have.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) : shared_(std::make_shared<Shared>()) {
    shared_->running = threads;
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([shared = shared_] { shared->serve(); });
    } catch (...) {  // the system has no more threads
      stop_and_join();
      throw;
    }
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() { stop_and_join(); }

  template <typename Task>
  auto submit(Task task) -> std::future<std::invoke_result_t<Task&>> {
    auto job = std::make_shared<std::packaged_task<std::invoke_result_t<Task&>()>>(std::move(task));
    auto result = job->get_future();
    shared_->add([job] { (*job)(); });
    return result;
  }

  // Does what the destructor does, but waits no longer than that. Returns whether all tasks have ended. If not, the
  // threads are left behind, so the tasks have to own all that they use.
  bool end(std::chrono::milliseconds limit) {
    shared_->stop();
    if (shared_->wait_for_end(limit)) return true;
    for (std::thread& thread : threads_) thread.detach();
    return false;
  }

 private:
  // What the threads use.
  class Shared {
   public:
    void add(std::function<void()> task) {
      {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
      }
      wake_.notify_one();
    }
    void stop() {
      std::deque<std::function<void()>> dropped;  // destroyed without the lock
      {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        dropped.swap(tasks_);
      }
      wake_.notify_all();
    }
    bool wait_for_end(std::chrono::milliseconds limit) {
      std::unique_lock lock(mutex_);
      return wake_.wait_for(lock, limit, [&] { return running == 0; });
    }
    void serve() {
      std::unique_lock lock(mutex_);
      while (!stopped_) {
        if (!wake_.wait_for(lock, std::chrono::seconds(1), [&] { return !tasks_.empty() || stopped_; })) continue;
        if (stopped_) break;
        std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
      }
      --running;
      wake_.notify_all();
    }

    int running = 0;  // threads that have not ended

   private:
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> tasks_;
    bool stopped_ = false;
  };

  void stop_and_join() {
    shared_->stop();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  std::shared_ptr<Shared> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace cohort
