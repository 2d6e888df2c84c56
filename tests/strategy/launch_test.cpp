// The launch runs a job on the replicas of this process, whatever the job is.
#include "strategy/launch.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "base/access.h"
#include "cohort/error.h"
#include "cohort/strategy.h"
#include "strategy/core.h"
#include "tests/support/errors.h"

namespace cohort::launch_test {
namespace {

using testing::expect_error;

class Noted : public detail::Job {
 public:
  void run(Replica& replica) override {
    const std::lock_guard lock(mutex_);
    ids.push_back(replica.id());
  }
  void begin_parts(const Replica& /*replica*/, std::size_t count) override { refuse(count); }
  void run_part(Replica& /*replica*/, const detail::SharePart& part) override { refuse(part.number); }
  void join_parts(const Replica& /*replica*/, const std::vector<detail::SharePart>& parts) override {
    refuse(parts.size());
  }

  std::vector<int> ids;

 private:
  static void refuse(std::size_t part) { ADD_FAILURE() << "the share is not divided, got " << part; }

  std::mutex mutex_;
};

Strategy mirrored(int replicas) {
  return MirroredStrategy({.devices = cpu_devices(replicas)});
}

TEST(Launch, RunsAJobOnceOnEachReplica) {
  for (const int replicas : {1, 3}) {
    const Strategy strategy = mirrored(replicas);
    const auto job = std::make_shared<Noted>();
    Access::core(strategy)->run(job);
    EXPECT_EQ(job->ids.size(), static_cast<std::size_t>(replicas));
    EXPECT_EQ(std::set(job->ids.begin(), job->ids.end()).size(), job->ids.size());
    EXPECT_EQ(Access::core(strategy)->launch().has_threads(), replicas > 1);
  }
}

// Each brings its number to a meeting.
class Meeting final : public Noted {
 public:
  explicit Meeting(Launch& launch) : launch_(launch) {}
  void run(Replica& replica) override {
    Noted::run(replica);
    int mine = replica.id();
    launch_.meet(replica.local_id(), "the meeting", &mine, [&](std::span<void* const> all) {
      for (void* const each : all) met.push_back(*static_cast<const int*>(each));
    });
  }
  std::vector<int> met;

 private:
  Launch& launch_;
};

TEST(Launch, AMeetingIsLedOnceWithWhatEachHasBrought) {
  for (const int replicas : {1, 3}) {
    const Strategy strategy = mirrored(replicas);
    const auto job = std::make_shared<Meeting>(Access::core(strategy)->launch());
    Access::core(strategy)->run(job);
    ASSERT_EQ(job->met.size(), static_cast<std::size_t>(replicas));
    for (int id = 0; id < replicas; ++id) EXPECT_EQ(job->met[static_cast<std::size_t>(id)], id);
  }
}

// Replica 1 fails before the meeting, at which the others wait for it.
class Failing final : public Noted {
 public:
  explicit Failing(Launch& launch) : launch_(launch) {}
  void run(Replica& replica) override {
    if (replica.id() == 1) throw NotFound("[test] replica 1 has nothing");
    launch_.meet(replica.local_id(), "the meeting", nullptr, [](std::span<void* const>) {});
    Noted::run(replica);
  }

 private:
  Launch& launch_;
};

TEST(Launch, TheErrorOfAReplicaEndsTheRunOfAll) {
  const Strategy strategy = mirrored(3);
  const auto failing = std::make_shared<Failing>(Access::core(strategy)->launch());
  expect_error<NotFound>([&] { Access::core(strategy)->run(failing); }, "replica 1 has nothing");
  EXPECT_TRUE(failing->ids.empty()) << "nobody passes the meeting";
  const auto job = std::make_shared<Noted>();
  Access::core(strategy)->run(job);
  EXPECT_EQ(job->ids.size(), 3U) << "the next run is whole";
}

}  // namespace
}  // namespace cohort::launch_test
