// Failures, and what is said of them, over every back end whose ranks may be threads.
#include <barrier>
#include <string>
#include <thread>

#include "tests/collective/process/conformance.h"
#include "tests/support/process_ranks.h"

namespace cohort::failures_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::with_process_ranks;

// The deadline of those who wait for one that does not come. The others have to come in that time, so that they begin
// together, when their connections are there. Whose deadline has passed waits for 5/4 of the
// heartbeat's timeout, too, in case that the other one is lost.
testing::ProcessRanksOptions with_soon(std::string_view transport, std::string algorithm = "auto") {
  return {.transport = transport,
          .timeout = seconds(4),
          .straggler_after = milliseconds(200),
          .heartbeat_timeout = seconds(7),
          .algorithm = std::move(algorithm)};
}

class Failures : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, Failures, ::testing::ValuesIn(testing::transports_of_threads()),
                         [](const auto& info) { return info.param; });

void begin_together(ProcessCommunicator& world, Membership& membership) {
  membership.barrier("begin", seconds(60));
  world.barrier();
}

TEST_P(Failures, AMismatchIsNamedOnEveryRank) {
  with_process_ranks(3, {.transport = GetParam()}, [](ProcessCommunicator& world, Membership&) {
    world.barrier();
    std::vector<torch::Tensor> tensors{torch::ones({world.rank() == 2 ? 4 : 5})};
    EXPECT_THAT(
        error_of<FailedPrecondition>([&] { world.all_reduce(tensors, ReduceOp::kSum); }),
        HasSubstr("do not do the same in collective 2: worker 0 calls all_reduce SUM of Float[5], worker 2 calls "
                  "all_reduce SUM of Float[4]"));
    const auto differ = [&] { world.rank() == 1 ? world.barrier() : world.broadcast(tensors, 0); };
    if (world.rank() == 2) tensors[0] = torch::ones({5});
    EXPECT_THAT(error_of<FailedPrecondition>(differ),
                HasSubstr("worker 0 calls broadcast from worker 0 of Float[5], worker 1 calls barrier"));
    world.barrier();  // the group goes on
  });
}

TEST_P(Failures, AFailureEndsWhatIsPendingEverywhere) {
  std::barrier all_there(3);
  with_process_ranks(3, {.transport = GetParam()}, [&](ProcessCommunicator& world, Membership& membership) {
    world.barrier();
    all_there.arrive_and_wait();
    if (world.rank() == 1) {
      membership.fail("worker 1: out of memory");
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(error_of<Unavailable>([&] { world.barrier(); }),
                AllOf(HasSubstr("in barrier: worker 1: out of memory"), HasSubstr("[collective] worker ")));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(15)) << "not at its deadline";
    EXPECT_THAT(error_of<Unavailable>([&] { world.barrier(); }), HasSubstr("out of memory")) << "and what comes later";
  });
}

TEST_P(Failures, WhoHasLeftIsNamed) {
  with_process_ranks(2, {.transport = GetParam()}, [](ProcessCommunicator& world, Membership&) {
    world.barrier();
    if (world.rank() == 1) return;
    EXPECT_THAT(error_of<Unavailable>([&] { world.barrier(); }), HasSubstr("worker 1 has ended its program"));
  });
}

TEST_P(Failures, WhoHasLeftIsNotMissedByAGroupOfOthers) {
  with_process_ranks(3, {.transport = GetParam(), .straggler_after = milliseconds(100)},
                     [](ProcessCommunicator& world, Membership&) {
                       const auto pair = world.split(world.rank() == 2 ? -1 : 0, 0);
                       if (!pair) return;
                       if (pair->rank() == 1) std::this_thread::sleep_for(milliseconds(800));
                       pair->barrier();
                       torch::Tensor tensor = torch::ones({1});
                       if (pair->rank() == 1) std::this_thread::sleep_for(milliseconds(800));
                       pair->rank() == 0 ? pair->recv(tensor, {.rank = 1}) : pair->send(tensor, {.rank = 0});
                     });
}

TEST_P(Failures, WhoDoesNotComeIsNamedAtTheDeadline) {
  with_process_ranks(3, with_soon(GetParam()), [](ProcessCommunicator& world, Membership& membership) {
    begin_together(world, membership);
    if (world.rank() != 1) {
      const std::string error = error_of<DeadlineExceeded>([&] { world.barrier(); });
      EXPECT_THAT(error, HasSubstr("waited 4 s in barrier for worker 1"));
      EXPECT_THAT(world.recorder().dump(), HasSubstr("#2"));
    }
    membership.barrier("end", seconds(60));
  });
}

// By levels only some exchange messages with the one who does not come: the others wait for them.
TEST(Levels, WhoDoesNotComeIsNamedByThoseOfItsGroupAndItsColumn) {
  with_process_ranks(4, with_soon("ring", "tree"), [](ProcessCommunicator& world, Membership& membership) {
    begin_together(world, membership);
    if (world.rank() == 0 || world.rank() == 3) {
      EXPECT_THAT(error_of<DeadlineExceeded>([&] { world.barrier(); }),
                  HasSubstr("waited 4 s in barrier for worker 1"));
    } else if (world.rank() == 2) {
      EXPECT_THROW(world.barrier(), Error);
    }
    membership.barrier("end", seconds(60));
  });
}

TEST_P(Failures, AnAbortEndsTheWaitWithItsReason) {
  with_process_ranks(2, {.transport = GetParam()}, [](ProcessCommunicator& world, Membership& membership) {
    world.barrier();
    if (world.rank() == 0) {
      const std::jthread other([&] {
        std::this_thread::sleep_for(milliseconds(200));
        world.abort("the user had enough");
      });
      EXPECT_THAT(error_of<Cancelled>([&] { world.barrier(); }), HasSubstr("cancelled, because the user had enough"));
    }
    membership.barrier("end", seconds(60));
  });
}

TEST_P(Failures, AGroupThatWasSplitNamesItsOwnMembers) {
  with_process_ranks(3, {.transport = GetParam()}, [](ProcessCommunicator& world, Membership&) {
    const auto pair = world.split(world.rank() == 1 ? -1 : 0, -world.rank());
    if (!pair) return world.barrier();
    torch::Tensor tensor = torch::ones({pair->rank() == 0 ? 2 : 3});
    EXPECT_THAT(error_of<FailedPrecondition>([&] {
                  pair->all_reduce({&tensor, 1}, ReduceOp::kSum);
                }),
                HasSubstr("worker 2 calls all_reduce SUM of Float[2], worker 0 calls all_reduce SUM of Float[3]"));
    const std::vector<torch::Tensor> parts(2, torch::ones({1, 1 + pair->rank()}));
    EXPECT_THAT(error_of<FailedPrecondition>([&] { (void)pair->all_to_all(parts); }),
                HasSubstr("worker 2 calls all_to_all of Float[-1, 1], worker 0 calls all_to_all of Float[-1, 2]"));
    world.barrier();
  });
}

TEST_P(Failures, AnAbortEndsTheGroupsThatWereSplit) {
  with_process_ranks(2, {.transport = GetParam()}, [](ProcessCommunicator& world, Membership& membership) {
    const auto group = world.split(0, 0);
    if (world.rank() == 0) {
      const std::jthread other([&] {
        std::this_thread::sleep_for(milliseconds(200));
        world.abort("the user had enough");
      });
      EXPECT_THAT(error_of<Cancelled>([&] { group->barrier(); }), HasSubstr("because the user had enough"));
    }
    membership.barrier("end", seconds(60));
  });
}

TEST_P(Failures, AMessageThatDoesNotMatchIsNamedOnBothSides) {
  with_process_ranks(2, {.transport = GetParam()}, [](ProcessCommunicator& world, Membership&) {
    torch::Tensor tensor = torch::ones({world.rank() == 0 ? 3 : 4});
    const auto differ = [&] {
      world.rank() == 0 ? world.send(tensor, {.rank = 1, .tag = 5}) : world.recv(tensor, {.rank = 0});
    };
    EXPECT_THAT(error_of<FailedPrecondition>(differ),
                HasSubstr("a message does not match: worker 0 calls send of Float[3] with tag 5 to worker 1, worker 1 "
                          "calls recv of Float[4] with tag 0 from worker 0"));
  });
}

TEST_P(Failures, APeerThatDoesNotReceiveIsNamedAtTheDeadline) {
  with_process_ranks(2, with_soon(GetParam()), [](ProcessCommunicator& world, Membership& membership) {
    begin_together(world, membership);
    if (world.rank() == 0) {
      const auto work = world.send_async(torch::ones({2}), {.rank = 1});
      EXPECT_THAT(error_of<DeadlineExceeded>([&] { work.wait(); }),
                  HasSubstr("waited 4 s in send of Float[2] with tag 0 to worker 1 for worker 1"));
    }
    membership.barrier("end", seconds(60));
  });
}

TEST_P(Failures, AFailureEndsMessagesAndAsynchronousOperations) {
  std::barrier all_there(2);
  with_process_ranks(2, {.transport = GetParam()}, [&](ProcessCommunicator& world, Membership& membership) {
    const auto group = world.split(0, 0);
    all_there.arrive_and_wait();
    if (world.rank() == 1) return membership.fail("worker 1: out of memory");
    const auto begin = std::chrono::steady_clock::now();
    torch::Tensor tensor = torch::ones({2});
    const auto sum = group->all_reduce_async({tensor}, ReduceOp::kSum);
    const auto message = world.recv_async(tensor, {.rank = 1});
    EXPECT_THAT(error_of<Unavailable>([&] { sum.wait(); }), HasSubstr("worker 1: out of memory"));
    EXPECT_THAT(error_of<Unavailable>([&] { message.wait(); }), HasSubstr("worker 1: out of memory"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(15)) << "not at its deadline";
  });
}

TEST(FlightRecorder, KeepsTheLastAndSaysHowTheyEnded) {
  FlightRecorder recorder;
  EXPECT_FALSE(recorder.last());
  for (int i = 0; i < 100; ++i) recorder.end(recorder.begin("old"), "");
  recorder.end(recorder.begin("broken"), "connection reset");
  recorder.begin("now");
  EXPECT_EQ(recorder.entries().size(), FlightRecorder::kKept);
  EXPECT_EQ(recorder.last()->number, 102U);
  EXPECT_THAT(recorder.dump(), AllOf(HasSubstr("failed: connection reset: broken"), HasSubstr("pending: now")));
  recorder.end(1, "too late");
  EXPECT_EQ(recorder.entries().front().error, "");
  const std::size_t before = recorder.dump().size();
  recorder.begin(std::string(5000, 'x'));
  EXPECT_LT(recorder.dump().size(), before + 500);
}

}  // namespace
}  // namespace cohort::failures_test
