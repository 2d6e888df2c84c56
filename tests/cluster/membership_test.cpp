// Memberships over real gRPC on loopback; tasks are threads here, and processes that are killed further down.
#include "cohort/cluster/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "cohort/error.h"
#include "tests/cluster/membership_cases.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::membership_test {
namespace {

using membership_cases::Case;
using membership_cases::Quick;
using membership_cases::with_tasks;
using membership_cases::workers;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::error_of;
using ::testing::HasSubstr;

const Quick quick;  // the leader keeps the membership

class LeaderMembership : public ::testing::TestWithParam<Case> {};
TEST_P(LeaderMembership, Does) {
  GetParam().run(quick);
}
INSTANTIATE_TEST_SUITE_P(All, LeaderMembership, ::testing::ValuesIn(membership_cases::kCases),
                         membership_cases::name_of);

TEST(Membership, ACoordinationThatNoWingReachesIsNamed) {
  MembershipOptions options = quick();
  options.coordination = "zookeeper://127.0.0.1:2181";
  EXPECT_THAT(
      error_of<Unimplemented>([&] {
        Membership(workers(1), {"worker", 0}, options);
      }),
      HasSubstr("[cluster] the coordination begins with zookeeper:, for which this build has no wing zookeeper"));
}

TEST(Membership, StartingWithoutTheLeaderNamesIt) {
  MembershipOptions options = quick();
  options.start_timeout = milliseconds(700);
  const ClusterSpec cluster = workers(3);
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                Membership(cluster, {"worker", 1}, options);
              }),
              HasSubstr("worker 1 waited 700 ms in start-up for the coordination leader, worker 0 at 127.0.0.1:"));
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
