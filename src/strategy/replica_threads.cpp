#include "strategy/replica_threads.h"

#include <algorithm>

#include "base/deadline.h"
#include "base/log.h"
#include "base/spin.h"
#include "cohort/trace.h"

namespace cohort {

// `asked` is raised by the caller, `done` by the thread; equal: idle. The mutex and the conditions serve only those who
// have given up spinning.
struct ReplicaThreads::Desk {
  alignas(64) std::atomic<uint64_t> asked{0};
  alignas(64) std::atomic<uint64_t> done{0};
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::atomic<bool> finished{false};
  std::shared_ptr<const Work> work;
  Patience patience_of_caller;
  std::mutex mutex;
  std::condition_variable wake;

  template <typename Ready>
  bool wait(const Ready& ready, bool spin, Patience& patience, std::chrono::milliseconds limit) {
    if (spin_until(ready, spin, patience)) return true;
    const Deadline deadline(limit);
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);
    const bool in_time = wake.wait_until(lock, deadline.when(), ready);
    sleepers.fetch_sub(1);
    return in_time;
  }

  void notify() {
    if (sleepers.load() == 0) return;
    { const std::lock_guard lock(mutex); }
    wake.notify_all();
  }
};

ReplicaThreads::ReplicaThreads(int replicas, bool spin) : spin_(spin) {
  for (int replica = 1; replica < replicas; ++replica) {
    desks_.push_back(std::make_shared<Desk>());
    threads_.emplace_back(serve, desks_.back(), replica, spin);
  }
}

void ReplicaThreads::serve(const std::shared_ptr<Desk>& desk, int replica, bool spin) {
  // An idle thread wakes up now and then only because every wait has an end.
  constexpr std::chrono::milliseconds kIdle = std::chrono::minutes(1);
  uint64_t served = 0;
  Patience patience;
  name_traced_thread("replica " + std::to_string(replica));
  while (true) {
    const auto ready = [&] { return desk->asked.load() != served || desk->stop.load(); };
    if (!desk->wait(ready, spin, patience, kIdle)) continue;
    if (desk->asked.load() == served) break;
    ++served;
    {
      const std::shared_ptr<const Work> work = std::move(desk->work);
      (*work)(replica);
    }
    desk->done.store(served);
    desk->notify();
  }
  desk->finished.store(true);
  desk->notify();
}

void ReplicaThreads::begin(const std::shared_ptr<const Work>& work) {
  for (const auto& desk : desks_) {
    desk->work = work;
    desk->asked.fetch_add(1);
    desk->notify();
  }
  (*work)(0);
}

bool ReplicaThreads::wait_for(Desk& desk, std::chrono::milliseconds limit) const {
  const uint64_t asked = desk.asked.load();
  return desk.wait([&] { return desk.done.load() == asked; }, spin_, desk.patience_of_caller, limit);
}

bool ReplicaThreads::run(const std::shared_ptr<const Work>& work, std::chrono::milliseconds limit) {
  begin(work);
  return std::all_of(desks_.begin(), desks_.end(), [&](const auto& desk) { return wait_for(*desk, limit); });
}

void ReplicaThreads::run_to_end(const Work& work) {
  constexpr std::chrono::milliseconds kLong = std::chrono::minutes(1);
  begin(std::make_shared<const Work>(work));
  for (std::size_t i = 0; i < desks_.size(); ++i) {
    while (!wait_for(*desks_[i], kLong)) {
      log().warn("[strategy] thread {} has not come back for a minute from a loop over memory", i + 1);
    }
  }
}

std::vector<int> ReplicaThreads::missing() const {
  std::vector<int> replicas;
  for (std::size_t i = 0; i < desks_.size(); ++i) {
    if (desks_[i]->done.load() != desks_[i]->asked.load()) replicas.push_back(static_cast<int>(i) + 1);
  }
  return replicas;
}

ReplicaThreads::~ReplicaThreads() {
  constexpr std::chrono::milliseconds kLimit = std::chrono::seconds(5);
  for (std::size_t i = 0; i < desks_.size(); ++i) {
    Desk& desk = *desks_[i];
    desk.stop.store(true);
    desk.notify();
    const bool idle = desk.done.load() == desk.asked.load();
    if (idle && desk.wait([&] { return desk.finished.load(); }, spin_, desk.patience_of_caller, kLimit)) {
      threads_[i].join();
    } else {
      log().warn("[strategy] replica {} is still busy when its strategy ends; its thread is left behind", i + 1);
      threads_[i].detach();
    }
  }
}

}  // namespace cohort
