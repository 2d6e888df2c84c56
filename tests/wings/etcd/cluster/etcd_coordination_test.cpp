// Memberships that real etcd processes keep: what every membership does, and what is etcd's alone.
#include "wings/etcd/cluster/etcd_coordination.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <future>
#include <thread>
#include <tuple>

#include "cohort/error.h"
#include "tests/cluster/membership_cases.h"
#include "tests/support/errors.h"
#include "tests/support/etcd.h"

namespace cohort::etcd_coordination_test {
namespace {

using membership_cases::Case;
using membership_cases::Quick;
using membership_cases::with_tasks;
using membership_cases::workers;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::error_of;
using testing::etcdctl;
using testing::EtcdServers;
using ::testing::HasSubstr;

constexpr milliseconds kLimit = seconds(20);

class EtcdCoordinationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdServers::missing().empty()) GTEST_SKIP() << EtcdServers::missing();
  }
};

std::vector<std::string> names_of_keys(EtcdClient& client, const std::string& prefix) {
  etcd::RangeRequest request;
  request.set_key(prefix);
  request.set_range_end(end_of_prefix(prefix));
  std::vector<std::string> names;
  const etcd::RangeResponse range = client.range(request, kLimit);
  for (const etcd::KeyValue& key : range.kvs()) names.push_back(key.key().substr(prefix.size()));
  return names;
}

// The cases of the leader's memberships, with one member of etcd and with three.
class EtcdMembership : public ::testing::TestWithParam<std::tuple<Case, int>> {};
TEST_P(EtcdMembership, Does) {
  if (!EtcdServers::missing().empty()) GTEST_SKIP() << EtcdServers::missing();
  const EtcdServers servers(std::get<1>(GetParam()));
  EtcdClient etcd(parse_etcd_address("etcd://" + servers.addresses()), {});
  EXPECT_EQ(names_of_keys(etcd, "/"), std::vector<std::string>());  // it is ready
  std::get<0>(GetParam()).run({.coordination = "etcd://" + servers.addresses()});
}
INSTANTIATE_TEST_SUITE_P(All, EtcdMembership,
                         ::testing::Combine(::testing::ValuesIn(membership_cases::kCases), ::testing::Values(1, 3)),
                         [](const auto& info) {
                           return c10::str(std::get<0>(info.param).name, "With", std::get<1>(info.param));
                         });

MembershipOptions quick_options(const std::string& coordination, const std::string& info = "",
                                milliseconds heartbeat_timeout = seconds(20)) {
  return Quick{.coordination = coordination}(info, heartbeat_timeout);
}

// The lease is removed by hand, as etcd does when nothing is heard of a process.
TEST_F(EtcdCoordinationTest, AMemberWhoseLeaseHasEndedWritesNothing) {
  const EtcdServers servers(1);
  const std::string coordination = "etcd://" + servers.addresses() + "/fenced";
  const ClusterSpec cluster = workers(2);
  std::promise<void> gone;
  auto survivor = std::async(std::launch::async, [&] {
    Membership membership(cluster, {"worker", 0}, quick_options(coordination));
    membership.put("k", "right");
    gone.get_future().get();
    return membership.await_failure().value_or("nothing");
  });
  EtcdCoordination fenced(cluster, {"worker", 1}, quick_options(coordination));
  (void)fenced.enter(cluster.to_json());
  EXPECT_EQ(fenced.get("k", kLimit), "right");
  EXPECT_EQ(fenced.put("mine", "1", /*if_absent=*/false), "1");
  EtcdClient etcd(parse_etcd_address(coordination), {});
  etcd.transact(EtcdTransaction().remove("/cohort/fenced/1/c/alive/worker 1").request(), kLimit);
  gone.set_value();
  EXPECT_THAT(survivor.get(), HasSubstr("worker 1 (pid"));
  EXPECT_THAT(error_of<Unavailable>([&] { fenced.put("k", "wrong", /*if_absent=*/false); }),
              HasSubstr("is lost: nothing was heard of it for 20 s"));
  EXPECT_THAT(error_of<Unavailable>([&] { fenced.barrier("b", seconds(1)); }), HasSubstr("is lost"));
  EXPECT_EQ(fenced.try_get("k"), "right");
}

TEST_F(EtcdCoordinationTest, ANumberOfTheRunThatIsNoneIsNamed) {
  const EtcdServers servers(1);
  const std::string coordination = "etcd://" + servers.addresses() + "/spoiled";
  EtcdClient etcd(parse_etcd_address(coordination), {});
  etcd.transact(EtcdTransaction().put("/cohort/spoiled/run", "first").request(), kLimit);
  EtcdCoordination end(workers(1), {"worker", 0}, quick_options(coordination));
  EXPECT_THAT(error_of<DataLoss>([&] { (void)end.enter(workers(1).to_json()); }),
              HasSubstr("the key /cohort/spoiled/run of"));
}

TEST_F(EtcdCoordinationTest, AProcessThatIsStartedAgainWaitsForTheEndOfTheOneBefore) {
  const EtcdServers servers(1);
  const std::string coordination = "etcd://" + servers.addresses();
  const ClusterSpec cluster = workers(2);
  {  // both end without a word, and their leases go on for 2 s
    EtcdCoordination first(cluster, {"worker", 0}, quick_options(coordination, "", seconds(2)));
    EtcdCoordination second(cluster, {"worker", 1}, quick_options(coordination, "", seconds(2)));
    auto entered = std::async(std::launch::async, [&] { (void)first.enter(cluster.to_json()); });
    (void)second.enter(cluster.to_json());
    entered.get();
  }
  with_tasks(2, [&](int index) {
    Membership membership(cluster, {"worker", index}, quick_options(coordination, std::to_string(index), seconds(5)));
    EXPECT_THAT(membership.infos(), ElementsAre("0", "1"));
    EXPECT_EQ(membership.try_get("k"), std::nullopt);
    membership.barrier("end", kLimit);
  });
}

TEST_F(EtcdCoordinationTest, AnotherClusterIsNamed) {
  const EtcdServers servers(1);
  const std::string coordination = "etcd://" + servers.addresses() + "/job";
  const ClusterSpec cluster = workers(2);
  std::promise<void> refused;
  auto first = std::async(std::launch::async, [&] {
    Membership membership(cluster, {"worker", 0}, quick_options(coordination));
    refused.get_future().get();
  });
  EtcdClient etcd(parse_etcd_address(coordination), {});
  while (names_of_keys(etcd, "/cohort/job/1/c/entered").empty()) std::this_thread::sleep_for(milliseconds(20));
  EXPECT_THAT(error_of<FailedPrecondition>([&] {
                Membership(workers(2), {"worker", 1}, quick_options(coordination));
              }),
              HasSubstr("worker 1 (pid"));
  refused.set_value();
  Membership(cluster, {"worker", 1}, quick_options(coordination));
  first.get();
  // The last one that leaves removes what the run had.
  EXPECT_THAT(names_of_keys(etcd, "/cohort/job/"), ElementsAre("run"));
}

TEST_F(EtcdCoordinationTest, AValueThatIsTooLongForEtcdIsRefused) {
  const EtcdServers servers(1);
  const ClusterSpec cluster = workers(1);
  Membership membership(cluster, {"worker", 0}, quick_options("etcd://" + servers.addresses()));
  for (const std::size_t bytes : {std::size_t{1'600'000}, std::size_t{3} << 20}) {
    EXPECT_THAT(error_of<InvalidArgument>([&] { membership.put("k", std::string(bytes, 'x')); }), HasSubstr("[etcd]"));
  }
  EXPECT_EQ(membership.put("k", std::string(1 << 20, 'x')).size(), std::size_t{1} << 20);
}

TEST_F(EtcdCoordinationTest, ALeaseThatEtcdDoesNotGrantIsNamed) {
  const EtcdServers servers(1);
  EXPECT_THAT(
      error_of<InvalidArgument>([&] {
        Membership(workers(1), {"worker", 0}, quick_options("etcd://" + servers.addresses(), "", milliseconds(500)));
      }),
      HasSubstr("leases of 2 s or more, but a silence of 1 s"));
}

TEST_F(EtcdCoordinationTest, AnEtcdThatIsNotThereIsNamed) {
  MembershipOptions options = quick_options("etcd://127.0.0.1:1");
  options.start_timeout = milliseconds(700);
  EXPECT_THAT(error_of<DeadlineExceeded>([&] {
                Membership(workers(1), {"worker", 0}, options);
              }),
              HasSubstr("in start-up for etcd at 127.0.0.1:1"));
}

TEST_F(EtcdCoordinationTest, AUserNeedsTheKeysOfTheJobAlone) {
  if (testing::program_path("etcdctl").empty()) GTEST_SKIP() << "etcdctl is not here: apt-get install etcd-client";
  const EtcdServers servers(1);
  const std::string address = servers.address(0);
  EtcdClient ready(parse_etcd_address("etcd://" + address), {});
  EXPECT_EQ(names_of_keys(ready, "/"), std::vector<std::string>());
  std::string said;
  for (const char* command : {"user add root:top", "user grant-role root root", "user add me:word", "role add trains",
                              "role grant-permission trains readwrite --prefix=true /cohort/job/",
                              "user grant-role me trains", "auth enable"}) {
    said += etcdctl(address, command);
  }
  EXPECT_THAT(said, HasSubstr("Authentication Enabled"));
  const ClusterSpec cluster = workers(2);
  with_tasks(2, [&](int index) {
    Membership membership(cluster, {"worker", index}, quick_options("etcd://me:word@" + address + "/job"));
    membership.put(std::to_string(index), "here");
    EXPECT_EQ(membership.get(std::to_string(1 - index), kLimit), "here");
    membership.barrier("end", kLimit);
  });
  const auto elsewhere = [&] {
    Membership(cluster, {"worker", 0}, quick_options("etcd://me:word@" + address + "/other"));
  };
  EXPECT_THAT(error_of<FailedPrecondition>(elsewhere), HasSubstr("permission denied"));
}

// One member of three after the other is killed and started again, while two tasks agree on values.
TEST_F(EtcdCoordinationTest, NothingIsLostWhenMembersAreKilled) {
  constexpr int kRounds = 60;
  EtcdServers servers(3);
  const std::string coordination = "etcd://" + servers.addresses();
  const ClusterSpec cluster = workers(2);
  std::atomic<int> rounds = 0;
  auto killer = std::async(std::launch::async, [&] {
    for (int i = 0; i < 3; ++i) {
      while (rounds < (i + 1) * kRounds / 4) std::this_thread::sleep_for(milliseconds(5));
      servers.kill(i);
      std::this_thread::sleep_for(seconds(2));
      servers.start(i);
      std::this_thread::sleep_for(seconds(2));
    }
  });
  with_tasks(2, [&](int index) {
    Membership membership(cluster, {"worker", index}, quick_options(coordination));
    for (int round = 0; round < kRounds; ++round) {
      const std::string name = std::to_string(round);
      const std::string own = std::to_string(index);
      const std::string winner = membership.put("first " + name, own, /*if_absent=*/true);
      membership.put(own + " saw " + name, winner);
      EXPECT_EQ(membership.get(std::to_string(1 - index) + " saw " + name, kLimit), winner) << round;
      membership.barrier("round", kLimit);
      if (index == 0) ++rounds;
      std::this_thread::sleep_for(milliseconds(50));
    }
    if (index == 0) killer.get();
    membership.barrier("end", seconds(60));
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_TRUE(membership.try_get("first " + std::to_string(round))) << round;
    }
    EXPECT_EQ(membership.failure(), std::nullopt);
    membership.barrier("read", kLimit);
  });
}

constexpr milliseconds kLostAfter = seconds(5);
constexpr const char* kLost = "is lost: nothing was heard of it for 5 s";

// Tells what a survivor hears when worker `victim` of 2 gets the signal; a process of its own, because gRPC and fork()
// do not go together.
[[noreturn]] void survives(const std::string& coordination, int victim, int signal) {
  const ClusterSpec cluster = workers(2);
  const pid_t other = ::fork();
  if (other == 0) {
    try {
      Membership membership(cluster, {"worker", victim}, quick_options(coordination, "", kLostAfter));
      for (;;) ::pause();
    } catch (...) {
    }
    ::_exit(1);
  }
  Membership membership(cluster, {"worker", 1 - victim}, quick_options(coordination, "", kLostAfter));
  auto waiting = std::async(std::launch::async, [&] {
    return error_of<Unavailable>([&] { (void)membership.get("what nobody puts", std::chrono::minutes(10)); });
  });
  ::kill(other, signal);
  const auto begin = std::chrono::steady_clock::now();
  std::string reason = membership.await_failure().value_or("nothing");
  if (reason == "nothing")
    reason = membership.await_failure().value_or("nothing");  // etcd looks at leases now and then
  reason += ", " + waiting.get();
  const auto took = std::chrono::steady_clock::now() - begin;
  ::kill(other, SIGKILL);
  const std::size_t first = reason.find(kLost);
  const bool named = reason.find("worker " + std::to_string(victim)) < first && first < reason.rfind(kLost);
  std::fprintf(stderr, "%s; after %.1f s\n", reason.c_str(), std::chrono::duration<double>(took).count());
  std::_Exit(named && took < std::chrono::minutes(1) ? 0 : 1);
}

// The first worker is no more than the other one.
[[noreturn]] void all_survive() {
  bool all = true;
  {
    EtcdServers servers(3);
    std::vector<pid_t> survivors;
    for (const int victim : {0, 1}) {
      for (const int signal : {SIGKILL, SIGSTOP}) {
        survivors.push_back(::fork());
        if (survivors.back() == 0) survives("etcd://" + servers.addresses(), victim, signal);
      }
    }
    for (const pid_t survivor : survivors) {
      int status = 0;
      ::waitpid(survivor, &status, 0);
      all = all && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
  }
  std::_Exit(all ? 0 : 1);
}

TEST(EtcdCoordinationDeathTest, WorkersThatAreKilledOrStoppedAreNamedToTheSurvivors) {
  if (!EtcdServers::missing().empty()) GTEST_SKIP() << EtcdServers::missing();
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the process starts anew: the tests before this one used gRPC
  EXPECT_EXIT(all_survive(), ::testing::ExitedWithCode(0), kLost);
}

}  // namespace
}  // namespace cohort::etcd_coordination_test
