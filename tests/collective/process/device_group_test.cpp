// Collectives on devices, with the CPU as the device and LibTorch's Gloo in the place of its NCCL.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include "collective/process/device_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "collective/nccl/nccl_group.h"
#include "tests/collective/process/conformance.h"
#include "tests/support/process_ranks.h"

namespace cohort::device_group_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::ProcessRanksOptions;
using testing::with_process_ranks;

std::shared_ptr<DeviceGroup> gloo_of_libtorch(torch::DeviceType devices, const std::shared_ptr<Membership>& members) {
  using Group = c10d::ProcessGroupGloo;
  const GroupMeeting meeting{
      .rank = members->task().index,
      .size = static_cast<int>(members->tasks().size()),
      .prefix = "devices/",
      .timeout = seconds(20),
      .put = [members](const std::string& key, const std::string& value) { members->put(key, value); },
      .get = [members](const std::string& key, milliseconds timeout) { return members->get(key, timeout); },
      .find = [members](const std::string& key) { return members->try_get(key); }};
  auto options = Group::Options::create(meeting.timeout);
  options->devices.push_back(Group::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<Group>(c10::make_intrusive<MeetingStore>(meeting), meeting.rank, meeting.size,
                                          std::move(options));
  return std::make_shared<C10dGroup<Group>>("c10d", devices, std::move(group), meeting.timeout);
}

ProcessRanksOptions with_devices(torch::DeviceType type) {
  return {.shared_memory = false, .devices = [type](const auto& members) { return gloo_of_libtorch(type, members); }};
}

TEST(DeviceGroup, DoesWhatACommunicatorMust) {
  for (const int size : {1, 2, 3}) {
    with_process_ranks(size, with_devices(torch::kCPU), [](ProcessCommunicator& world, Membership&) {
      EXPECT_EQ(world.name(), "c10d");
      testing::check_sums(world);
      testing::check_copies(world);
      testing::check_wrong_calls(world);
    });
  }
}

TEST(DeviceGroup, WhatItDoesNotCarryGoesOverTheWire) {
  with_process_ranks(2, with_devices(torch::kCUDA), [](ProcessCommunicator& world, Membership&) {
    testing::check_sums(world);
    testing::check_copies(world);
  });
}

// A group of LibTorch's whose work never ends.
struct Stuck : c10::intrusive_ptr_target {
  struct Work {
    bool isCompleted() const { return false; }
    void wait() const {}
  };
  using Tensors = std::vector<torch::Tensor>;
  std::shared_ptr<Work> allreduce(Tensors& /*tensors*/) { return std::make_shared<Work>(); }
  std::shared_ptr<Work> broadcast(Tensors& /*tensors*/, const c10d::BroadcastOptions& /*options*/) {
    return std::make_shared<Work>();
  }
  std::shared_ptr<Work> allgather(std::vector<Tensors>& /*all*/, Tensors& /*own*/) { return std::make_shared<Work>(); }
};

ProcessRanksOptions stuck(milliseconds timeout) {
  return {.timeout = timeout, .shared_memory = false, .devices = [timeout](const auto& /*members*/) {
            return std::make_shared<C10dGroup<Stuck>>("stuck", torch::kCPU, c10::make_intrusive<Stuck>(), timeout);
          }};
}

TEST(DeviceGroup, AFailureEndsWhatIsPending) {
  with_process_ranks(2, stuck(seconds(60)), [](ProcessCommunicator& world, Membership& membership) {
    torch::Tensor tensor = torch::ones({3});
    std::jthread failing;
    if (world.rank() == 1) {
      failing = std::jthread([&] {
        std::this_thread::sleep_for(milliseconds(200));
        membership.fail("worker 1: out of memory");
      });
    }
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(error_of<Unavailable>([&] {
                  world.all_reduce({&tensor, 1}, ReduceOp::kSum);
                }),
                HasSubstr("worker 1: out of memory"));
    EXPECT_THAT(error_of<Unavailable>([&] { world.broadcast({&tensor, 1}, 0); }), HasSubstr("out of memory"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
  });
}

TEST(DeviceGroup, NobodyWaitsBeyondTheDeadline) {
  with_process_ranks(2, stuck(milliseconds(300)), [](ProcessCommunicator& world, Membership&) {
    torch::Tensor tensor = torch::ones({3});
    EXPECT_THAT(error_of<DeadlineExceeded>([&] { (void)world.all_gather(tensor); }),
                AllOf(HasSubstr("waited 300 ms in all_gather of Float[-1]"), HasSubstr("worker")));
  });
}

TEST(DeviceGroup, AbortEndsThisRankOnly) {
  with_process_ranks(1, stuck(seconds(60)), [](ProcessCommunicator& world, Membership&) {
    const std::shared_ptr<DeviceGroup> group =
        std::make_shared<C10dGroup<Stuck>>("stuck", torch::kCPU, c10::make_intrusive<Stuck>(), seconds(60));
    group->abort();
    EXPECT_THROW(group->sum(torch::ones({1})), std::runtime_error);
    group->drop();
    EXPECT_THROW(group->broadcast(torch::ones({1}), 0), std::runtime_error);
    world.barrier();
  });
}

TEST(DeviceGroup, WaitingLeavesTheCoreToOthers) {
  C10dGroup<Stuck> group("stuck", torch::kCPU, c10::make_intrusive<Stuck>(), milliseconds(500));
  const auto computed = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto before = computed();
  EXPECT_THROW(group.sum(torch::ones({1})), std::runtime_error);
  EXPECT_LT(computed() - before, milliseconds(100));
}

GroupMeeting meeting_over(std::map<std::string, std::string>& told) {
  return {.prefix = "group/",
          .put = [&told](const std::string& key, const std::string& value) { told[key] = value; },
          .get = [&told](const std::string& key, milliseconds) -> std::string {
            if (told.count(key) == 0) throw DeadlineExceeded("nobody told " + key);
            return told[key];
          },
          .find = [&told](const std::string& key) -> std::optional<std::string> {
            if (key == "group/lost") throw std::runtime_error("the group has ended");
            return told.count(key) == 0 ? std::nullopt : std::optional(told[key]);
          }};
}

// LibTorch's monitor of NCCL asks from a thread of its own, in which nobody catches.
TEST(DeviceGroup, ItsStoreIsAskedForSignsOfFailureFromOtherThreads) {
  std::map<std::string, std::string> told;
  GroupMeeting meeting = meeting_over(told);
  meeting.get = [](const std::string&, milliseconds) -> std::string {
    ADD_FAILURE() << "waits for it";
    return "";
  };
  MeetingStore store(meeting);
  const c10::intrusive_ptr<c10d::Store> other = store.clone();
  store.set("id", {7});
  std::jthread([&] {
    EXPECT_TRUE(other->check({"id"}));
    EXPECT_FALSE(other->check({"exception_dump"}));
    EXPECT_FALSE(other->check({"lost"}));
  }).join();
}

TEST(DeviceGroup, ItsStoreSaysWhatItDoesNotHave) {
  std::map<std::string, std::string> told;
  MeetingStore store(meeting_over(told));
  store.set("id", {1, 0, 255});
  EXPECT_EQ(told.count("group/id"), 1U);
  EXPECT_EQ(store.get("id"), (std::vector<uint8_t>{1, 0, 255}));
  EXPECT_TRUE(store.check({"id"}));
  EXPECT_FALSE(store.check({"id", "other"}));
  EXPECT_THROW(store.wait({"other"}), DeadlineExceeded);
  EXPECT_THAT(error_of<Unimplemented>([&] { store.add("count", 1); }), HasSubstr("LibTorch asks the workers' store"));
}

TEST(DeviceGroup, NcclWithoutNcclSaysSo) {
  if (has_nccl_group()) GTEST_SKIP() << "this build has it";
  EXPECT_THAT(error_of<Unimplemented>([] { make_nccl_group({}); }), HasSubstr("none between processes"));
}

}  // namespace
}  // namespace cohort::device_group_test
