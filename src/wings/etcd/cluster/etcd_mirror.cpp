// A watch that breaks is followed by a read of all keys, not by a watch from the last revision on: the state of a run
// follows from its keys alone, and etcd may have forgotten older revisions.
#include "wings/etcd/cluster/etcd_mirror.h"

#include "cohort/error.h"

namespace cohort {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRead(5000);
constexpr milliseconds kPauseOfMirror(50);

}  // namespace

EtcdMirror::EtcdMirror(EtcdClient& client, EtcdRun run)
    : client_(client), run_(std::move(run)), follower_([this](const std::stop_token& stop) { follow(stop); }) {}

void EtcdMirror::wait(milliseconds time, const std::function<bool(const EtcdRun&)>& question) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return question(run_) || woken_; });
}

void EtcdMirror::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

EtcdRun EtcdMirror::run() const {
  const std::lock_guard lock(mutex_);
  return run_;
}

// Reads all keys. Returns the revision that they have.
int64_t EtcdMirror::read() {
  etcd::RangeRequest request;
  request.set_key(run_.prefix());
  request.set_range_end(end_of_prefix(run_.prefix()));
  const etcd::RangeResponse answer = client_.range(request, kRead);
  const std::lock_guard lock(mutex_);
  run_.replace(answer.kvs());
  changed_.notify_all();
  return answer.header().revision();
}

void EtcdMirror::follow(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    try {
      etcd::WatchCreateRequest request;
      request.set_key(run_.prefix());
      request.set_range_end(end_of_prefix(run_.prefix()));
      request.set_start_revision(read() + 1);
      client_.watch(
          request,
          [this](const etcd::WatchResponse& answer) {
            const std::lock_guard lock(mutex_);
            for (const etcd::Event& event : answer.events()) run_.apply(event);
            changed_.notify_all();
          },
          stop);
    } catch (const Cancelled&) {
      return;
    } catch (const Error&) {
      // The heartbeats tell the user of an etcd that does not answer.
    }
    std::this_thread::sleep_for(kPauseOfMirror);
  }
}

}  // namespace cohort
