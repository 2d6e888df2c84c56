// EtcdMirror: keeps what a task knows of a run up to date, by a watch.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "wings/etcd/cluster/etcd_run.h"
#include "wings/etcd/rpc/etcd_client.h"

namespace cohort {

// Thread-safe.
class EtcdMirror {
 public:
  // The client stays longer than this does. Its close() ends the watch.
  EtcdMirror(EtcdClient& client, EtcdRun run);
  EtcdMirror(const EtcdMirror&) = delete;
  EtcdMirror& operator=(const EtcdMirror&) = delete;

  // Returns when the question is answered with true, the time has passed or wake() is called. The question is asked at
  // least once, under a lock.
  void wait(std::chrono::milliseconds time, const std::function<bool(const EtcdRun&)>& question);
  // Ends all waits, now and later.
  void wake();
  // Returns a copy of what is known.
  EtcdRun run() const;

 private:
  void follow(const std::stop_token& stop);
  int64_t read();

  EtcdClient& client_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  EtcdRun run_;
  bool woken_ = false;
  std::jthread follower_;
};

}  // namespace cohort
