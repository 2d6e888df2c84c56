#include "collective/work_queues.h"

#include "base/tracer.h"
#include "cohort/trace.h"

namespace cohort {

namespace {

thread_local bool is_queue_thread = false;

}  // namespace

bool WorkQueue::in_operation() {
  return is_queue_thread;
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WorkQueue::push(std::function<void()> operation) {
  refuse_in_trace("an asynchronous collective or message");
  const std::lock_guard lock(mutex_);
  operations_.push_back(std::move(operation));
  pending_.fetch_add(1);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

void WorkQueue::settle() {
  if (pending_.load(std::memory_order_acquire) == 0 || inside()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_.load() == 0; });
}

void WorkQueue::work() {
  thread_id_.store(std::this_thread::get_id());
  is_queue_thread = true;
  name_traced_thread("communication");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !operations_.empty(); });
    if (operations_.empty()) return;
    std::function<void()> operation = std::move(operations_.front());
    operations_.pop_front();
    lock.unlock();
    operation();
    operation = nullptr;  // this lets go of the tensors in it
    lock.lock();
    pending_.fetch_sub(1);
    changed_.notify_all();
  }
}

WorkQueue& WorkQueues::messages(int peer, bool sends) {
  refuse_in_trace("a message");
  const std::lock_guard lock(mutex_);
  return messages_.try_emplace({peer, sends}).first->second;
}

}  // namespace cohort
