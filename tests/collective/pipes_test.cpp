// The example of docs/extending.md: all that a back end between processes has to show.
#include "tests/collective/pipes.h"

#include <latch>

#include "collective/gradient_wire.h"
#include "tests/collective/process/conformance.h"
#include "tests/support/rank_errors.h"

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
  testing::rethrow_first(errors);
}

TEST(Pipes, DoWhatACommunicatorMust) {
  for (const int size : {1, 2, 3, 8}) {
    with_pipes(size, seconds(60), [](ProcessCommunicator& world) {
      EXPECT_EQ(world.name(), "pipes");
      testing::check_sums(world);
      testing::check_order_of_sums(world);
      testing::check_half_sums(world);
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

// Counts the bytes that leave a rank.
class Counted final : public Transport {
 public:
  Counted(std::unique_ptr<Transport> inner, int64_t& bytes) : inner_(std::move(inner)), bytes_(bytes) {}
  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Message> send(int to, std::span<const std::byte> bytes, Lane lane) override {
    bytes_ += static_cast<int64_t>(bytes.size());
    return inner_->send(to, bytes, lane);
  }
  std::unique_ptr<Message> receive(int from, std::span<std::byte> bytes, Lane lane) override {
    return inner_->receive(from, bytes, lane);
  }
  std::unique_ptr<Transport> subset(std::span<const int> ranks, const std::string& name) override {
    return inner_->subset(ranks, name);
  }
  void abort() noexcept override { inner_->abort(); }

 private:
  std::unique_ptr<Transport> inner_;
  int64_t& bytes_;
};

TEST(Pipes, ARankSendsNoMoreThanThePiecesOfTheOthers) {
  const auto mesh = std::make_shared<testing::PipeMesh>();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([mesh, rank] {
      int64_t bytes = 0;
      ProcessCommunicator world(
          std::make_unique<Counted>(std::make_unique<testing::PipeTransport>(mesh, "world", rank, 4, seconds(20)),
                                    bytes),
          {});
      world.barrier();
      const int64_t announcement = std::exchange(bytes, 0);
      const torch::Tensor tensor = torch::ones({4 * 1000, 16});
      (void)world.reduce_scatter(tensor, ReduceOp::kSum);
      EXPECT_EQ(std::exchange(bytes, 0) - announcement, 3 * 1000 * 16 * 4);
      std::vector<torch::Tensor> parts;
      for (int to = 0; to < 4; ++to) parts.push_back(torch::ones({100 * to, 2}));
      (void)world.all_to_all(parts);
      EXPECT_EQ(std::exchange(bytes, 0) - announcement, (0 + 1 + 2 + 3 - rank) * 100 * 2 * 4);
      torch::Tensor whole = tensor.clone();
      world.all_reduce({&whole, 1}, ReduceOp::kSum);
      EXPECT_EQ(std::exchange(bytes, 0) - announcement, 2 * 3 * 1000 * 16 * 4);
      // Half types travel as they are.
      torch::Tensor half = tensor.to(torch::kBFloat16);
      (void)world.reduce_scatter(half, ReduceOp::kSum);
      EXPECT_EQ(std::exchange(bytes, 0) - announcement, 3 * 1000 * 16 * 2);
      world.all_reduce({&half, 1}, ReduceOp::kSum);
      EXPECT_EQ(std::exchange(bytes, 0) - announcement, 2 * 3 * 1000 * 16 * 2);
      GradientWire("float16").all_reduce(world, whole);
      EXPECT_EQ(bytes - announcement, 2 * 3 * 1000 * 16 * 2);
      EXPECT_TRUE(torch::equal(whole, torch::full_like(whole, 4 * 4)));
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
  std::latch waited(2);
  with_pipes(2, milliseconds(300), [&](ProcessCommunicator& world) {
    if (world.rank() == 0) {
      EXPECT_THAT(error_of<DeadlineExceeded>([&] { world.barrier(); }), HasSubstr("rank 0 waited 300 ms in barrier"));
    }
    waited.arrive_and_wait();
  });
  with_pipes(2, seconds(20), [](ProcessCommunicator& world) {
    if (world.rank() == 1) return;
    EXPECT_THAT(error_of<Unavailable>([&] { world.recv(torch::ones({1}), {.rank = 1}); }),
                HasSubstr("the connection is closed"));
  });
}

TEST(Pipes, AnAbortEndsTheWaitWithItsReason) {
  std::latch aborted(2);
  with_pipes(2, seconds(20), [&](ProcessCommunicator& world) {
    if (world.rank() == 1) return aborted.arrive_and_wait();
    const auto message = world.recv_async(torch::ones({1}), {.rank = 1});
    std::this_thread::sleep_for(milliseconds(100));
    world.abort("the user had enough");
    EXPECT_THAT(error_of<Cancelled>([&] { message.wait(); }), HasSubstr("because the user had enough"));
    EXPECT_THAT(error_of<Cancelled>([&] { world.barrier(); }), HasSubstr("because the user had enough"));
    aborted.arrive_and_wait();
  });
}

}  // namespace
}  // namespace cohort::pipes_test
