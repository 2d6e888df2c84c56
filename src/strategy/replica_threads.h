// ReplicaThreads: the long-lived threads that run the replicas of one process. The caller's thread runs replica 0.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace cohort {

class ReplicaThreads {
 public:
  // The work of a thread in one run(). It must not throw, and must keep alive whatever it uses.
  using Work = std::function<void(int replica)>;

  // Starts the threads. With `spin` idle ones look for work for some hundred microseconds before they sleep.
  ReplicaThreads(int replicas, bool spin);
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;
  // Waits for idle threads; one that is stuck in a work is left behind (with a warning) rather than waited for.
  ~ReplicaThreads();

  // Runs work(0) here and work(i) on the other threads. Returns false if one has not come back `limit` after work(0)
  // did; then nothing more can be run. The work is shared, because a stuck thread may still use it.
  bool run(const std::shared_ptr<const Work>& work, std::chrono::milliseconds limit);

  // Runs a work that uses what the caller has and ends by itself, such as a loop over memory: waits until all have come
  // back, and says so now and then if one does not.
  void run_to_end(const Work& work);

  // Returns the replicas that had not come back when run() gave up.
  std::vector<int> missing() const;

 private:
  // The state that a thread and this object share, which outlives both.
  struct Desk;
  static void serve(const std::shared_ptr<Desk>& desk, int replica, bool spin);
  void begin(const std::shared_ptr<const Work>& work);
  bool wait_for(Desk& desk, std::chrono::milliseconds limit) const;

  std::vector<std::shared_ptr<Desk>> desks_;
  std::vector<std::thread> threads_;
  bool spin_;
};

}  // namespace cohort
