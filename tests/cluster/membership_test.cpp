// Memberships over real gRPC on loopback; tasks are threads here, and processes that are killed further down.
#include "cohort/cluster/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "cluster/free_port.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/log_watch.h"

namespace cohort::membership_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

ClusterSpec workers(int count) {
  std::vector<std::string> addresses(static_cast<std::size_t>(count));
  addresses[0] = "127.0.0.1:" + std::to_string(free_port("127.0.0.1"));
  return ClusterSpec(std::map<std::string, std::vector<std::string>>{{"worker", addresses}});
}

// The heartbeats are for tests in which nobody is lost: a busy machine may stop for seconds.
MembershipOptions quick(const std::string& info = "", milliseconds heartbeat_timeout = seconds(20)) {
  return {.start_timeout = seconds(20),
          .report_interval = milliseconds(200),
          .heartbeat_timeout = heartbeat_timeout,
          .leave_timeout = seconds(20),
          .info = info};
}

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

TEST(Membership, TasksMeetAndKnowOfEachOther) {
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

TEST(Membership, OneGroupMayFollowAnother) {
  const ClusterSpec cluster = workers(3);
  with_tasks(3, [&](int index) {
    for (int run = 0; run < 3; ++run) {
      Membership membership(cluster, {"worker", index}, quick(std::to_string(run)));
      EXPECT_THAT(membership.infos(), Each(std::to_string(run)));
      std::this_thread::sleep_for(milliseconds(100 * index));  // the leader is the first to end
    }
  });
}

TEST(Membership, StartingWithoutTheOthersNamesThem) {
  MembershipOptions options = quick();
  options.start_timeout = milliseconds(700);
  const ClusterSpec cluster = workers(3);
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                Membership(cluster, {"worker", 0}, options);
              }),
              HasSubstr("worker 0 waited 700 ms in start-up for worker 1, worker 2"));
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                Membership(cluster, {"worker", 1}, options);
              }),
              HasSubstr("worker 1 waited 700 ms in start-up for the coordination leader, worker 0 at 127.0.0.1:"));
}

TEST(Membership, ABarrierNamesWhoDidNotCome) {
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

TEST(Membership, WhoFailsTakesAllAlongWithItsReason) {
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

TEST(Membership, WhoLeavesIsMissedByThoseWhoStillNeedIt) {
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

// Who holds a place is known to live when it is heard of a quarter of the time-out after another one has asked for it.
TEST(Membership, TheSameTaskTwiceIsRefused) {
  const ClusterSpec cluster = workers(3);
  const auto own = [] { return quick("", seconds(2)); };
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

TEST(Membership, OnlyWhoHasTheSecretEnters) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "secret", "0123456789abcdef");
  testing::write_file(folder / "other", "0123456789abcdeg");
  const ClusterSpec cluster = workers(2);
  std::promise<void> refused;
  with_tasks(3, [&](int i) {
    MembershipOptions options = quick();
    options.security.secret_file = folder / (i == 2 ? "other" : "secret");
    if (i == 2) {
      options.start_timeout = milliseconds(1000);
      EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                    Membership(cluster, {"worker", 1}, options);
                  }),
                  HasSubstr("worker 1 waited 1 s in start-up for the coordination leader, worker 0 at 127.0.0.1:"));
      refused.set_value();
      return;
    }
    if (i == 1) refused.get_future().get();
    Membership membership(cluster, {"worker", i}, options);
    membership.barrier("end", seconds(20));
  });
}

TEST(Membership, WrongCallsAreNamed) {
  EXPECT_THAT(error_of<InvalidArgument>([] { Membership(workers(2), {"worker", 2}, quick()); }), HasSubstr("worker 2"));
  MembershipOptions options = quick();
  options.heartbeat_timeout = milliseconds(10);
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                Membership(workers(1), {"worker", 0}, options);
              }),
              HasSubstr("heartbeat_timeout is 10 ms, wanted 100 ms or more"));
  options = quick();
  options.security.key_file = "key.pem";
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                Membership(workers(1), {"worker", 0}, options);
              }),
              HasSubstr("needs ca_file, certificate_file and key_file together"));
  const std::map<std::string, std::vector<std::string>> elsewhere{{"worker", {"192.0.2.1:1234"}}};
  EXPECT_THAT(error_of<FailedPrecondition>([&] {
                Membership(ClusterSpec(elsewhere), {"worker", 0}, quick());
              }),
              HasSubstr("192.0.2.1:1234 can be reached from other machines"));
  options = quick();
  options.allow_insecure = true;
  EXPECT_THAT(error_of<Unavailable>([&] {
                Membership(ClusterSpec(elsewhere), {"worker", 0}, options);
              }),
              HasSubstr("cannot listen on 192.0.2.1:1234"));
}

constexpr milliseconds kLostAfter = seconds(5);
constexpr const char* kLost = "is lost: nothing was heard of it for 5 s";

// A task in a process of its own, which lives until it is killed.
class Victim {
 public:
  // Forks: to be made before this process uses gRPC, whose threads do not survive a fork.
  Victim(const ClusterSpec& cluster, int index) : pid_(::fork()) {
    if (pid_ != 0) return;
    try {
      Membership membership(cluster, {"worker", index}, quick("", kLostAfter));
      for (;;) ::pause();
    } catch (...) {
    }
    ::_exit(1);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  ~Victim() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void send(int signal) const { ::kill(pid_, signal); }

 private:
  pid_t pid_;
};

// Tells what a survivor hears, and after how long, when worker `victim` of 2 gets the signal. It runs in a process of
// its own, because gRPC and fork() do not go together.
[[noreturn]] void survives(int victim, int signal) {
  const ClusterSpec cluster = workers(2);
  const Victim other(cluster, victim);
  Membership membership(cluster, {"worker", 1 - victim}, quick("", kLostAfter));
  membership.put("here", "yes");
  auto waiting = std::async(std::launch::async, [&] {
    return error_of<Unavailable>([&] { (void)membership.get("what nobody puts", std::chrono::minutes(10)); });
  });
  other.send(signal);
  const auto begin = std::chrono::steady_clock::now();
  try {
    membership.put("more", "yes");  // to a leader that may be gone
  } catch (const Unavailable&) {
  }
  const std::string reason = membership.await_failure().value_or("nothing") + ", " + waiting.get();
  const auto took = std::chrono::steady_clock::now() - begin;
  const std::string name = "worker " + std::to_string(victim);
  const std::size_t first = reason.find(kLost);
  const bool named = reason.find(name) < first && first < reason.rfind(kLost);  // in the reason and to who waited
  other.send(SIGKILL);  // a stopped one would stay, and hold the test's standard error
  std::fprintf(stderr, "%s; after %.1f s\n", reason.c_str(), std::chrono::duration<double>(took).count());
  std::_Exit(named && took < std::chrono::minutes(2) ? 0 : 1);  // not at the end of its own wait
}

// Has each of the two killed and stopped, all in clusters of their own at the same time.
[[noreturn]] void all_survive() {
  std::vector<pid_t> survivors;
  for (const int victim : {0, 1}) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      survivors.push_back(::fork());
      if (survivors.back() == 0) survives(victim, signal);
    }
  }
  bool all = true;
  for (const pid_t survivor : survivors) {
    int status = 0;
    ::waitpid(survivor, &status, 0);
    all = all && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::_Exit(all ? 0 : 1);
}

TEST(MembershipDeathTest, WorkersThatAreKilledOrStoppedAreNamedToTheSurvivors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the process starts anew: the tests before this one used gRPC
  EXPECT_EXIT(all_survive(), ::testing::ExitedWithCode(0), kLost);
}

}  // namespace
}  // namespace cohort::membership_test
