// The cases of every membership: the tests of the coordination leader and those of etcd share them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "cluster/free_port.h"
#include "cohort/cluster/cluster_spec.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/log_watch.h"

namespace cohort::membership_cases {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

inline ClusterSpec workers(int count) {
  std::vector<std::string> addresses(static_cast<std::size_t>(count));
  addresses[0] = "127.0.0.1:" + std::to_string(free_port("127.0.0.1"));
  return ClusterSpec(std::map<std::string, std::vector<std::string>>{{"worker", addresses}});
}

// Makes the options of a test. The heartbeats are for tests in which nobody is lost: a busy machine may stop for
// seconds.
struct Quick {
  std::string coordination = "";  // MembershipOptions::coordination

  MembershipOptions operator()(const std::string& info = "", milliseconds heartbeat_timeout = seconds(20)) const {
    return {.start_timeout = seconds(20),
            .report_interval = milliseconds(200),
            .heartbeat_timeout = heartbeat_timeout,
            .leave_timeout = seconds(20),
            .info = info,
            .coordination = coordination};
  }
};

// Runs fn(index) for each task, each in a thread of its own.
template <typename Fn>
void with_tasks(int count, const Fn& fn) {
  std::vector<std::future<void>> ends;
  for (int i = 0; i < count; ++i) ends.push_back(std::async(std::launch::async, [&fn, i] { fn(i); }));
  for (std::size_t i = 0; i < ends.size(); ++i) {
    try {
      ends[i].get();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "task " << i << ": " << error.what();
    }
  }
}

inline void starting_without_the_others_names_them(const Quick& quick) {
  MembershipOptions options = quick();
  options.start_timeout = milliseconds(1700);
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                Membership(workers(3), {"worker", 0}, options);
              }),
              HasSubstr("worker 0 waited 1.7 s in start-up for worker 1, worker 2"));
}

inline void tasks_meet_and_know_of_each_other(const Quick& quick) {
  const ClusterSpec cluster = workers(3);
  with_tasks(3, [&](int index) {
    if (index == 0) std::this_thread::sleep_for(milliseconds(300));  // the leader comes last
    Membership membership(cluster, {"worker", index}, quick("info " + std::to_string(index)));
    EXPECT_THAT(membership.infos(), ElementsAre("info 0", "info 1", "info 2"));
    EXPECT_EQ(membership.tasks()[2], (TaskId{"worker", 2}));
    for (int i = 0; i < 3; ++i) membership.barrier("again", seconds(10));
    const std::string first = membership.put("first", std::to_string(index), /*if_absent=*/true);
    EXPECT_EQ(first, membership.get("first", seconds(10)));
    EXPECT_EQ(membership.try_get("nothing"), std::nullopt);
    membership.barrier("end", seconds(10));
    EXPECT_EQ(membership.failure(), std::nullopt);
  });
}

inline void one_group_may_follow_another(const Quick& quick) {
  const ClusterSpec cluster = workers(3);
  with_tasks(3, [&](int index) {
    for (int run = 0; run < 3; ++run) {
      Membership membership(cluster, {"worker", index}, quick(std::to_string(run)));
      EXPECT_THAT(membership.infos(), Each(std::to_string(run)));
      std::this_thread::sleep_for(milliseconds(100 * index));  // the leader is the first to end
    }
  });
}

inline void a_barrier_names_who_did_not_come(const Quick& quick) {
  const ClusterSpec cluster = workers(2);
  with_tasks(2, [&](int index) {
    Membership membership(cluster, {"worker", index}, quick());
    if (index == 0) {
      EXPECT_THAT(error_of<DeadlineExceeded>([&] { membership.barrier("b", milliseconds(300)); }),
                  HasSubstr("worker 0 waited 300 ms in the barrier b for worker 1"));
    }
    membership.barrier("together", seconds(10));
  });
}

inline void who_fails_takes_all_along_with_its_reason(const Quick& quick) {
  const ClusterSpec cluster = workers(3);
  with_tasks(3, [&](int index) {
    Membership membership(cluster, {"worker", index}, quick());
    std::promise<std::string> heard;
    membership.on_failure([&](const std::string& reason) { heard.set_value(reason); });
    if (index == 2) membership.fail("worker 2: out of memory");
    EXPECT_EQ(heard.get_future().get(), "worker 2: out of memory");
    membership.fail("worker 1: missed worker 2");
    EXPECT_EQ(membership.await_failure(), "worker 2: out of memory");
    EXPECT_THAT(error_of<Unavailable>([&] { membership.barrier("b", seconds(10)); }), HasSubstr("out of memory"));
    EXPECT_THAT(error_of<Unavailable>([&] { membership.require_whole(); }), HasSubstr("[cluster] worker 2"));
  });
}

inline void who_leaves_is_missed_by_those_who_still_need_it(const Quick& quick) {
  const ClusterSpec cluster = workers(2);
  with_tasks(2, [&](int index) {
    Membership membership(cluster, {"worker", index}, quick());
    membership.barrier("b", seconds(10));
    if (index == 1) return;
    EXPECT_THAT(membership.await_failure().value_or(""), HasSubstr("worker 1 has ended its program"));
    EXPECT_THAT(error_of<Unavailable>([&] { membership.require_whole(); }),
                HasSubstr("worker 1 has ended its program"));
    EXPECT_EQ(membership.failure(), std::nullopt);
  });
}

// The first process has shown that it is alive when the second one is refused.
inline void the_same_task_twice_is_refused(const Quick& quick) {
  const ClusterSpec cluster = workers(3);
  const auto own = [&] { return quick("", seconds(2)); };
  std::promise<void> first_is_there;
  std::atomic<bool> told = false;
  const testing::LogWatch watch([&](const std::string& text) {
    const bool one_is_missing = text.find("worker 0 waits in start-up for worker 2 (") != std::string::npos;
    if (one_is_missing && !told.exchange(true)) first_is_there.set_value();
  });
  std::promise<void> refused;
  std::promise<void> complete;
  std::promise<void> refused_again;
  with_tasks(4, [&](int i) {
    if (i == 3) {
      first_is_there.get_future().get();
      const auto second = [&] { Membership(cluster, {"worker", 1}, own()); };
      EXPECT_THAT(error_of<FailedPrecondition>(second), HasSubstr("the place of worker 1 is taken by pid"));
      refused.set_value();
      complete.get_future().get();
      EXPECT_THAT(error_of<FailedPrecondition>(second), HasSubstr("which is alive; this process is pid"));
      refused_again.set_value();
      return;
    }
    if (i == 2) refused.get_future().get();
    Membership membership(cluster, {"worker", i}, own());
    if (i == 0) complete.set_value();
    if (i == 2) refused_again.get_future().get();
    membership.barrier("end", seconds(20));
    EXPECT_EQ(membership.failure(), std::nullopt);
  });
}

struct Case {
  const char* name;
  void (*run)(const Quick& quick);
};
inline constexpr Case kCases[] = {
    {"StartingWithoutTheOthersNamesThem", starting_without_the_others_names_them},
    {"TasksMeetAndKnowOfEachOther", tasks_meet_and_know_of_each_other},
    {"OneGroupMayFollowAnother", one_group_may_follow_another},
    {"ABarrierNamesWhoDidNotCome", a_barrier_names_who_did_not_come},
    {"WhoFailsTakesAllAlongWithItsReason", who_fails_takes_all_along_with_its_reason},
    {"WhoLeavesIsMissedByThoseWhoStillNeedIt", who_leaves_is_missed_by_those_who_still_need_it},
    {"TheSameTaskTwiceIsRefused", the_same_task_twice_is_refused},
};

inline std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

}  // namespace cohort::membership_cases
