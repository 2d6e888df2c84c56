// ShardCopier: gives another server the shards of a home, on a thread of its own. Whoever wants the copy asks for it
// again and again, and learns how far it is.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace cohort {

// Thread-safe. One copy at a time.
class ShardCopier {
 public:
  // A copy: which shards of which home, for which process of which server, and the epoch and term in which it was
  // ordered.
  struct Job {
    uint64_t epoch = 0;
    uint64_t term = 0;
    int home = 0;
    int destination = 0;
    uint64_t process = 0;
    std::vector<uint32_t> shards = {};
    uint64_t serial = 0;  // counts the attempts; the copier sets it

    // Returns whether both are the same copy, in whichever attempt.
    bool is(const Job& other) const {
      return epoch == other.epoch && term == other.term && home == other.home && destination == other.destination &&
             process == other.process && shards == other.shards;
    }
  };
  struct Progress {
    bool done = false;
    uint64_t bytes = 0;
  };

  // Is told of every part that was sent, and throws Cancelled when the copy is not wanted any more.
  using Sent = std::function<void(int64_t bytes)>;
  using Send = std::function<void(uint32_t shard, const Job& job, const Sent& sent)>;

  // Makes a copier that sends each shard by this function.
  explicit ShardCopier(Send send) : send_(std::move(send)) {}
  ShardCopier(const ShardCopier&) = delete;
  ShardCopier& operator=(const ShardCopier&) = delete;
  ~ShardCopier();

  // Begins the copy unless it is under way or done, waits for its end for at most `wait`, and returns how far it is.
  // Throws what ended it; it begins again when it is asked for again. Unavailable: an earlier copy has not ended yet.
  Progress go_on(const Job& job, std::chrono::milliseconds wait);

 private:
  void run(const Job& job, const std::stop_token& stop);

  const Send send_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Job> job_;
  uint64_t attempts_ = 0;
  bool ended_ = true;
  std::exception_ptr error_;
  std::atomic<uint64_t> bytes_ = 0;
  std::jthread thread_;
};

}  // namespace cohort
