#include "wings/pipeline/base/wake_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace cohort::wake_place_test {
namespace {

std::vector<int> cores_of(pthread_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(pthread_getaffinity_np(thread, sizeof(set), &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void keep_to(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof(set), &set), 0);
}

// A thread that sleeps until it is woken, and says where it was then.
class Sleeper {
 public:
  explicit Sleeper(std::vector<int> cores) : thread_([this, cores = std::move(cores)] { sleep(cores); }) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return asleep_; });
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Returns the core on which it wakes up.
  int wake_at(int core) {
    std::unique_lock lock(mutex_);
    place_.set_core(core);
    place_.bind();
    bound_to_ = cores();
    asked_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return woken_at_ >= 0; });
    return woken_at_;
  }
  std::vector<int> cores() { return cores_of(thread_.native_handle()); }
  const std::vector<int>& bound_to() const { return bound_to_; }

 private:
  void sleep(const std::vector<int>& cores) {
    keep_to(cores);
    std::unique_lock lock(mutex_);
    place_.sleep();
    asleep_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return asked_; });
    woken_at_ = sched_getcpu();
    place_.leave();
    changed_.notify_all();
    changed_.wait(lock, [this] { return ends_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  WakePlace place_;
  bool asleep_ = false, asked_ = false, ends_ = false;
  int woken_at_ = -1;
  std::vector<int> bound_to_;
  std::thread thread_;
};

TEST(WakePlace, AThreadGoesOnWhereItIsToldAndMayMoveThen) {
  const std::vector<int> all = cores_of(pthread_self());
  for (const int core : all) {
    Sleeper sleeper(all);
    EXPECT_EQ(sleeper.wake_at(core), core);
    EXPECT_EQ(sleeper.bound_to(), std::vector<int>{core});
    EXPECT_EQ(sleeper.cores(), all);
  }
}

TEST(WakePlace, ACoreThatTheThreadMayNotUseIsLeftOut) {
  const std::vector<int> all = cores_of(pthread_self());
  if (all.size() < 2) GTEST_SKIP() << "wants two cores";
  Sleeper sleeper({all[0]});
  EXPECT_EQ(sleeper.wake_at(all[1]), all[0]);
  EXPECT_EQ(sleeper.bound_to(), std::vector<int>{all[0]});
}

TEST(WakePlace, AThreadThatDoesNotSleepIsLeftAlone) {
  const std::vector<int> all = cores_of(pthread_self());
  WakePlace place;
  place.set_core(all.front());
  place.bind();
  EXPECT_EQ(cores_of(pthread_self()), all);
  place.sleep();
  place.bind();
  EXPECT_EQ(cores_of(pthread_self()), std::vector<int>{all.front()});
  place.leave();
  place.bind();
  EXPECT_EQ(cores_of(pthread_self()), all);
}

TEST(WakePlace, CoresFollowEachOtherInARing) {
  const std::vector<int> all = cores_of(pthread_self());
  keep_to({all.back()});
  EXPECT_EQ(core_behind(0), all.back());
  EXPECT_EQ(core_behind(3), all.back());
  keep_to(all);
  const int next = core_behind(1);
  EXPECT_EQ(std::count(all.begin(), all.end(), next), 1);
}

}  // namespace
}  // namespace cohort::wake_place_test
