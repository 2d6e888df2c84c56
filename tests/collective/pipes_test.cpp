// The example of docs/extending.md: all that a back end between processes has to show.
#include "tests/collective/pipes.h"

#include "tests/collective/process/conformance.h"

namespace cohort::pipes_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::error_of;
using ::testing::HasSubstr;

// Runs fn(communicator) on each rank's thread; rethrows the first failure in rank order.
void with_pipes(int size, milliseconds timeout, const std::function<void(ProcessCommunicator&)>& fn) {
  const auto mesh = std::make_shared<testing::PipeMesh>();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          ProcessCommunicator world(std::make_unique<testing::PipeTransport>(mesh, "world", rank, size, timeout),
                                    {.agreement = {.timeout = timeout}});
          fn(world);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

TEST(Pipes, DoWhatACommunicatorMust) {
  for (const int size : {1, 2, 3, 8}) {
    with_pipes(size, seconds(60), [](ProcessCommunicator& world) {
      EXPECT_EQ(world.name(), "pipes");
      testing::check_sums(world);
      testing::check_order_of_sums(world);
      testing::check_shared_sums(world);
      testing::check_copies(world);
      testing::check_wrong_calls(world);
      testing::check_pieces(world);
      testing::check_messages(world);
      testing::check_async(world);
      testing::check_split(world);
      world.barrier();
    });
  }
}

TEST(Pipes, AMismatchIsFoundOnEveryRank) {
  with_pipes(3, seconds(20), [](ProcessCommunicator& world) {
    torch::Tensor tensor = torch::ones({world.rank() == 1 ? 4 : 5});
    EXPECT_THAT(error_of<FailedPrecondition>([&] {
                  world.all_reduce({&tensor, 1}, ReduceOp::kSum);
                }),
                HasSubstr("do not do the same in collective 1: rank 0 calls"));
    const std::vector<torch::Tensor> parts(3, torch::ones({2, world.rank() == 2 ? 4 : 5}));
    EXPECT_THAT(error_of<FailedPrecondition>([&] { (void)world.all_to_all(parts); }), HasSubstr("rank 2 calls"));
    world.barrier();
  });
}

TEST(Pipes, WhoDoesNotComeOrHasLeftEndsTheWait) {
  with_pipes(2, milliseconds(300), [](ProcessCommunicator& world) {
    if (world.rank() == 1) return std::this_thread::sleep_for(milliseconds(600));
    EXPECT_THAT(error_of<DeadlineExceeded>([&] { world.barrier(); }), HasSubstr("rank 0 waited 300 ms in barrier"));
  });
  with_pipes(2, seconds(20), [](ProcessCommunicator& world) {
    if (world.rank() == 1) return;
    EXPECT_THAT(error_of<Unavailable>([&] { world.recv(torch::ones({1}), {.rank = 1}); }),
                HasSubstr("the connection is closed"));
  });
}

TEST(Pipes, AnAbortEndsTheWaitWithItsReason) {
  with_pipes(2, seconds(20), [](ProcessCommunicator& world) {
    if (world.rank() == 1) return std::this_thread::sleep_for(milliseconds(500));
    const auto message = world.recv_async(torch::ones({1}), {.rank = 1});
    std::this_thread::sleep_for(milliseconds(100));
    world.abort("the user had enough");
    EXPECT_THAT(error_of<Cancelled>([&] { message.wait(); }), HasSubstr("because the user had enough"));
    EXPECT_THAT(error_of<Cancelled>([&] { world.barrier(); }), HasSubstr("because the user had enough"));
  });
}

}  // namespace
}  // namespace cohort::pipes_test
