// Collectives on devices, with the CPU as the device and LibTorch's Gloo in the place of its NCCL.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include "wings/cuda/collective/nccl/c10d_communicator.h"

#include <array>
#include <latch>
#include <map>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "collective/devices/nccl.h"
#include "tests/collective/process/conformance.h"
#include "tests/support/process_ranks.h"

namespace cohort::c10d_communicator_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::ProcessRanksOptions;
using testing::with_process_ranks;

// LibTorch's Gloo, with what it lacks of NCCL's: old versions have no reduce_scatter, and its messages only come
// through while somebody waits for them.
class GlooOfLibTorch : public c10::intrusive_ptr_target {
 public:
  using Tensors = std::vector<torch::Tensor>;
  struct Done {
    bool isCompleted() const { return true; }
    std::exception_ptr exception() const { return nullptr; }
    void wait() const {}
  };

  explicit GlooOfLibTorch(const Meeting& ranks) {
    auto options = c10d::ProcessGroupGloo::Options::create(ranks.timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<MeetingStore>(ranks), ranks.rank,
                                                         ranks.size, std::move(options));
  }

  auto allreduce(Tensors& tensors) { return group_->allreduce(tensors); }
  auto broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
    return group_->broadcast(tensors, options);
  }
  auto allgather(std::vector<Tensors>& all, Tensors& own) { return group_->allgather(all, own); }
  auto alltoall_base(torch::Tensor& in, torch::Tensor& out, std::vector<int64_t>& in_sizes,
                     std::vector<int64_t>& out_sizes) {
    return group_->alltoall_base(in, out, in_sizes, out_sizes);
  }
  auto barrier(const c10d::BarrierOptions& options) { return group_->barrier(options); }
  auto reduce_scatter(Tensors& own, std::vector<Tensors>& all) {
    Tensors whole{at::cat(all.front())};
    auto work = allreduce(whole);
    work->wait();
    own.front().copy_(whole.front().tensor_split(group_->getSize(), 0)[static_cast<std::size_t>(group_->getRank())]);
    return work;
  }
  std::shared_ptr<Done> send(Tensors& tensors, int to, int tag) {
    group_->send(tensors, to, tag)->wait();
    return std::make_shared<Done>();
  }
  std::shared_ptr<Done> recv(Tensors& tensors, int from, int tag) {
    group_->recv(tensors, from, tag)->wait();
    return std::make_shared<Done>();
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

std::shared_ptr<Communicator> gloo_of_libtorch(const std::shared_ptr<Membership>& members) {
  const Meeting meeting{
      .rank = members->task().index,
      .size = static_cast<int>(members->tasks().size()),
      .prefix = "devices/",
      .timeout = seconds(20),
      .put = [members](const std::string& key, const std::string& value) { members->put(key, value); },
      .get = [members](const std::string& key, milliseconds timeout) { return members->get(key, timeout); },
      .find = [members](const std::string& key) { return members->try_get(key); }};
  return std::make_shared<C10dCommunicator<GlooOfLibTorch>>(
      "c10d", meeting, [](const Meeting& ranks) { return c10::make_intrusive<GlooOfLibTorch>(ranks); });
}

ProcessRanksOptions with_devices(torch::DeviceType type) {
  return {.shared_memory = false, .devices = gloo_of_libtorch, .device_type = type};
}

TEST(C10dCommunicator, DoesWhatACommunicatorMust) {
  for (const int size : {1, 2, 3}) {
    with_process_ranks(size, with_devices(torch::kCPU), [](ProcessCommunicator& world, Membership&) {
      EXPECT_EQ(world.name(), "c10d");
      testing::check_sums(world);
      testing::check_copies(world);
      testing::check_wrong_calls(world);
      testing::check_pieces(world);
      testing::check_messages(world);
      testing::check_async(world);
      testing::check_split(world);
    });
  }
}

TEST(C10dCommunicator, WhatItDoesNotCarryGoesOverTheTransport) {
  with_process_ranks(2, with_devices(torch::kCUDA), [](ProcessCommunicator& world, Membership&) {
    testing::check_sums(world);
    testing::check_copies(world);
  });
}

// A group of LibTorch's whose work never ends.
struct Stuck : c10::intrusive_ptr_target {
  struct Work {
    bool isCompleted() const { return failure != nullptr; }
    std::exception_ptr exception() const { return failure; }
    void wait() const {}
  };
  using Tensors = std::vector<torch::Tensor>;
  using Started = std::shared_ptr<Work>;
  Started allreduce(Tensors& /*tensors*/) { return std::make_shared<Work>(); }
  Started broadcast(Tensors& /*tensors*/, const c10d::BroadcastOptions& /*options*/) { return allreduce(none); }
  Started allgather(std::vector<Tensors>& /*all*/, Tensors& /*own*/) { return allreduce(none); }
  Started reduce_scatter(Tensors& /*own*/, std::vector<Tensors>& /*all*/) { return allreduce(none); }
  Started alltoall_base(torch::Tensor& /*in*/, torch::Tensor& /*out*/, std::vector<int64_t>& /*in_sizes*/,
                        std::vector<int64_t>& /*out_sizes*/) {
    return allreduce(none);
  }
  Started barrier(const c10d::BarrierOptions& /*options*/) { return allreduce(none); }
  Started send(Tensors& /*tensors*/, int /*to*/, int /*tag*/) { return allreduce(none); }
  Started recv(Tensors& /*tensors*/, int /*from*/, int /*tag*/) { return allreduce(none); }

  Tensors none;
  static inline std::exception_ptr failure;  // of all works
};

std::shared_ptr<Communicator> make_stuck(milliseconds timeout) {
  return std::make_shared<C10dCommunicator<Stuck>>("stuck", Meeting{.timeout = timeout},
                                                   [](const Meeting&) { return c10::make_intrusive<Stuck>(); });
}

ProcessRanksOptions stuck(milliseconds timeout) {
  return {.timeout = timeout,
          .shared_memory = false,
          .devices = [timeout](const auto& /*members*/) { return make_stuck(timeout); },
          .device_type = torch::kCPU};
}

TEST(C10dCommunicator, AFailureEndsWhatIsPending) {
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
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(40)) << "not at its deadline";
  });
}

TEST(C10dCommunicator, NobodyWaitsBeyondTheDeadline) {
  // A rank that ends while the other one still waits is another failure.
  std::latch both(2);
  with_process_ranks(2, stuck(seconds(1)), [&](ProcessCommunicator& world, Membership&) {
    torch::Tensor tensor = torch::ones({3});
    EXPECT_THAT(error_of<DeadlineExceeded>([&] { (void)world.all_gather(tensor); }),
                AllOf(HasSubstr("waited 1 s in all_gather of Float[-1]"), HasSubstr("worker")));
    both.arrive_and_wait();
  });
}

TEST(C10dCommunicator, AbortEndsThisRankOnly) {
  with_process_ranks(1, stuck(seconds(60)), [](ProcessCommunicator& world, Membership&) {
    const std::shared_ptr<Communicator> group = make_stuck(seconds(60));
    torch::Tensor one = torch::ones({1});
    group->abort("enough");
    testing::expect_error<std::runtime_error>([&] { group->all_reduce({&one, 1}, ReduceOp::kSum); }, "enough");
    testing::expect_error<std::runtime_error>([&] { group->broadcast({&one, 1}, 0); }, "enough");
    world.barrier();
  });
}

// A group of LibTorch's whose work ends at once, and which notes the devices of its barriers.
struct Noting : Stuck {
  using Ended = std::shared_ptr<GlooOfLibTorch::Done>;
  Ended allreduce(Tensors& /*tensors*/) { return std::make_shared<GlooOfLibTorch::Done>(); }
  Ended barrier(const c10d::BarrierOptions& options) {
    devices.push_back(options.device_ids);
    return allreduce(none);
  }

  static inline std::vector<std::vector<int64_t>> devices;
};

// Returns a tensor of a device that nobody has, which has no memory.
torch::Tensor of_device(torch::Device device) {
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, at::DataPtr(nullptr, device), nullptr, false);
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(none), c10::DispatchKeySet(c10::DispatchKey::XPU),
                                                   caffe2::TypeMeta::Make<float>());
  impl->set_sizes_contiguous(std::array<int64_t, 1>{1});
  return torch::Tensor(std::move(impl));
}

// Without a device NCCL's group would take the one that has the number of its rank.
TEST(C10dCommunicator, HasItsBarriersOnTheDeviceOfItsCollectives) {
  Noting::devices.clear();
  std::map<std::string, std::string> told;
  const Meeting meeting{.rank = 0,
                        .size = 2,
                        .prefix = "devices/",
                        .timeout = seconds(20),
                        .put = [&](const std::string& key, const std::string& value) { told[key] = value; },
                        .get = [&](const std::string& key, milliseconds /*timeout*/) { return told.at(key); },
                        .find =
                            [&](const std::string& key) {
                              told[std::string(key).replace(key.size() - 1, 1, "1")] = "";  // the other rank has come
                              return told.count(key) > 0 ? std::optional(told[key]) : std::nullopt;
                            }};
  C10dCommunicator<Noting> group("noting", meeting, [](const Meeting&) { return c10::make_intrusive<Noting>(); });
  group.barrier();
  EXPECT_EQ(told.size(), 2U);
  EXPECT_TRUE(Noting::devices.empty());
  torch::Tensor one = of_device({torch::kXPU, 3});
  group.all_reduce({&one, 1}, ReduceOp::kSum);
  group.barrier();
  EXPECT_EQ(Noting::devices, std::vector<std::vector<int64_t>>{{3}});
}

TEST(C10dCommunicator, SumsInTheOrderOfStreams) {
  with_process_ranks(2, with_devices(torch::kCPU), [](ProcessCommunicator& world, Membership&) {
    EXPECT_EQ(world.stream_sums(torch::kCUDA), nullptr);
    StreamSums* const sums = world.stream_sums(torch::kCPU);
    ASSERT_NE(sums, nullptr);
    const torch::Tensor tensor = torch::full({3}, world.rank() + 1.0);
    for (int i = 0; i < 2; ++i) sums->begin_all_reduce(tensor);
    EXPECT_TRUE(torch::equal(tensor, torch::full({3}, 6.0)));
    EXPECT_EQ(sums->error(), "");
    world.barrier();
    sums->end_sums("enough");
    EXPECT_EQ(sums->error(), "enough");
    testing::expect_error<std::runtime_error>([&] { sums->begin_all_reduce(tensor); }, "enough");
  });
}

TEST(C10dCommunicator, TellsWhatHasEndedASum) {
  const std::shared_ptr<Communicator> group = make_stuck(seconds(60));
  auto& sums = dynamic_cast<StreamSums&>(*group);
  sums.begin_all_reduce(torch::ones({1}));
  EXPECT_EQ(sums.error(), "");
  Stuck::failure = std::make_exception_ptr(std::runtime_error("the network is gone"));
  EXPECT_THAT(sums.error(), HasSubstr("the network is gone"));
  Stuck::failure = nullptr;
}

TEST(C10dCommunicator, WaitingLeavesTheCoreToOthers) {
  const std::shared_ptr<Communicator> group = make_stuck(milliseconds(500));
  torch::Tensor one = torch::ones({1});
  const auto computed = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto before = computed();
  EXPECT_THROW(group->all_reduce({&one, 1}, ReduceOp::kSum), std::runtime_error);
  EXPECT_LT(computed() - before, milliseconds(100));
}

Meeting meeting_over(std::map<std::string, std::string>& told) {
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
TEST(C10dCommunicator, ItsStoreIsAskedForSignsOfFailureFromOtherThreads) {
  std::map<std::string, std::string> told;
  Meeting meeting = meeting_over(told);
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

TEST(C10dCommunicator, ItsStoreSaysWhatItDoesNotHave) {
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

TEST(C10dCommunicator, NcclWithoutNcclSaysSo) {
  if (has_nccl()) GTEST_SKIP() << "this build has it";
  EXPECT_THAT(error_of<Unimplemented>([] { make_nccl({}); }), HasSubstr("nccl between processes: this build has none"));
}

}  // namespace
}  // namespace cohort::c10d_communicator_test
