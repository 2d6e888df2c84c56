#include "base/cpu_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

namespace cohort::cpu_threads_test {
namespace {

TEST(IntraOpThreads, AreSetInANewThreadToo) {
  const int before = at::get_num_threads();
  std::thread([] {
    for (const int wanted : {1, 3}) {
      const IntraOpThreads threads(wanted);
      EXPECT_EQ(at::get_num_threads(), wanted);
    }
  }).join();
  std::thread([] {
    const IntraOpThreads threads(3);
    EXPECT_EQ(at::get_num_threads(), 3);
  }).join();
  EXPECT_EQ(at::get_num_threads(), before);
}

}  // namespace
}  // namespace cohort::cpu_threads_test
