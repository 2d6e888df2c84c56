// ThreadPool: a fixed number of threads that run tasks in the order of submission.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <vector>

namespace cohort {

// Thread-safe. An exception of a task arrives at its future. The destructor drops the tasks that have not begun (their
// futures get broken_promise) and waits for those that have.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { serve(stop); });
    }
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() {
    for (std::jthread& thread : threads_) thread.request_stop();
    { const std::lock_guard lock(mutex_); }  // no thread may miss it between its test and its sleep
    wake_.notify_all();
  }

  template <typename Task>
  auto submit(Task task) -> std::future<std::invoke_result_t<Task&>> {
    auto job = std::make_shared<std::packaged_task<std::invoke_result_t<Task&>()>>(std::move(task));
    auto result = job->get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.emplace_back([job] { (*job)(); });
    }
    wake_.notify_one();
    return result;
  }

 private:
  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        const auto ready = [&] { return !tasks_.empty() || stop.stop_requested(); };
        if (!wake_.wait_for(lock, std::chrono::seconds(1), ready)) continue;
        if (stop.stop_requested()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::jthread> threads_;  // the last member: joined before the others go
};

}  // namespace cohort
