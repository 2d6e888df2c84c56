#include "cohort/preemption.h"

#include <gtest/gtest.h>

#include <csignal>
#include <optional>

namespace cohort::preemption_test {
namespace {

TEST(PreemptionWatcher, HearsSigtermWhileItIsThere) {
  static int others = 0;
  struct sigaction before = {};
  struct sigaction mine = {};
  mine.sa_handler = [](int) { ++others; };
  ::sigaction(SIGTERM, &mine, &before);
  {
    std::optional<PreemptionWatcher> first(std::in_place);
    EXPECT_FALSE(first->preempted());
    ::raise(SIGTERM);
    EXPECT_TRUE(first->preempted());
    const PreemptionWatcher second;
    EXPECT_FALSE(second.preempted()) << "it came before";
    first.reset();
    ::raise(SIGTERM);
    EXPECT_TRUE(second.preempted());
    EXPECT_EQ(others, 0);
  }
  ::raise(SIGTERM);
  EXPECT_EQ(others, 1) << "the handler before is back";
  ::sigaction(SIGTERM, &before, nullptr);
}

}  // namespace
}  // namespace cohort::preemption_test
