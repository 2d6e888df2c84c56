#include "base/spin.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <thread>

#include "base/deadline.h"

namespace cohort::spin_test {
namespace {

void stay_on(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(core), &cores);
  ASSERT_EQ(::pthread_setaffinity_np(::pthread_self(), sizeof cores, &cores), 0);
}

TEST(SpinTest, EndsAsSoonAsItIsDone) {
  Patience patience;
  int looks = 0;
  EXPECT_TRUE(spin_until([&] { return ++looks == 3; }, true, patience));
  EXPECT_EQ(looks, 3);
  EXPECT_FALSE(spin_until([] { return false; }, false, patience));
  EXPECT_EQ(patience.naps, 0);
}

// A thread that has yielded its core to a busy program has lost a whole turn; the waits that follow sleep instead.
TEST(SpinTest, SleepsSoonBesideABusyProgram) {
  std::thread waits([] {
    const int core = ::sched_getcpu();
    stay_on(core);
    std::atomic<bool> over = false;
    std::thread stranger([&] {
      stay_on(core);
      while (!over) cpu_pause();
    });
    Patience patience;
    const Deadline deadline(std::chrono::seconds(30));
    while (patience.naps == 0 && !deadline.passed()) {
      EXPECT_FALSE(spin_until([] { return false; }, true, patience));
    }
    const int naps = patience.naps;
    EXPECT_GT(naps, 0);
    int looks = 0;
    EXPECT_FALSE(spin_until([&] { return ++looks < 0; }, true, patience));
    EXPECT_EQ(patience.naps, naps - 1);
    EXPECT_LT(looks, 300) << "a short look before it sleeps";
    over = true;
    stranger.join();
  });
  waits.join();
}

}  // namespace
}  // namespace cohort::spin_test
