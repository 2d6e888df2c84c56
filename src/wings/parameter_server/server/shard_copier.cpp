#include "wings/parameter_server/server/shard_copier.h"

#include "base/fail.h"

namespace cohort {

ShardCopier::~ShardCopier() {
  thread_.request_stop();
}

void ShardCopier::run(const Job& job, const std::stop_token& stop) {
  std::exception_ptr error;
  try {
    for (const uint32_t shard : job.shards) {
      send_(shard, job, [&](int64_t bytes) {
        bytes_ += static_cast<uint64_t>(bytes);
        if (stop.stop_requested()) fail<Cancelled>("[parameter server] the copy of home ", job.home, " was given up");
      });
    }
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    error_ = error;
  }
  wake_.notify_all();
}

ShardCopier::Progress ShardCopier::go_on(const Job& job, std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  if (!job_ || !job_->is(job)) {
    if (!ended_) {
      thread_.request_stop();
      fail<Unavailable>("[parameter server] the copy of home ", job_->home, " has not ended yet, so that of home ",
                        job.home, " cannot begin");
    }
    job_ = job;
    job_->serial = ++attempts_;
    ended_ = false;
    error_ = nullptr;
    bytes_ = 0;
    thread_ = std::jthread([this, mine = *job_](const std::stop_token& stop) { run(mine, stop); });
  }
  wake_.wait_for(lock, wait, [&] { return ended_; });
  if (ended_ && error_) {
    job_.reset();
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  return {.done = ended_, .bytes = bytes_};
}

}  // namespace cohort
