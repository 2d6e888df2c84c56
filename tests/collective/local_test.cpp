#include "collective/local/local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cohort/error.h"
#include "tests/collective/process/conformance.h"
#include "tests/support/ranks.h"

namespace cohort::local_test {
namespace {

using ::testing::HasSubstr;
using testing::with_ranks;

TEST(Local, DoesWhatACommunicatorMust) {
  for (const int size : {1, 2, 3, 8}) {
    with_ranks(size, [](Communicator& world) {
      testing::check_copies(world);
      testing::check_pieces(world);
      testing::check_messages(world);
      testing::check_async(world);
      testing::check_split(world);
    });
  }
}

TEST(Local, OperationsAreSpansOfATrace) {
  testing::check_spans([](const auto& fn) { with_ranks(2, fn); });
}

TEST(Local, AMessageThatNobodySendsIsMissed) {
  std::latch waited(2);  // a rank that has ended is another reason
  with_ranks(2, {.timeout = std::chrono::milliseconds(50)}, [&](Communicator& world) {
    if (world.rank() == 0) {
      testing::expect_error<DeadlineExceeded>([&] { world.recv(torch::ones({1}), {.rank = 1}); },
                                              "replica 0 waited 50 ms in recv for replica 1");
    }
    waited.arrive_and_wait();
  });
  with_ranks(2, [](Communicator& world) {
    if (world.rank() == 1) return;
    const auto message = world.recv_async(torch::ones({1}), {.rank = 1});
    testing::expect_error<FailedPrecondition>([&] { message.wait(); }, "replica 1, which has already returned");
  });
}

TEST(Local, AnAbortEndsMessagesAsynchronousOperationsAndGroupsThatWereSplit) {
  with_ranks(3, [](Communicator& world) {
    const auto group = world.split(0, -world.rank());
    torch::Tensor tensor = torch::ones({1});
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      world.abort("the disk is full");
    }
    const auto expect_cancelled = [](const auto& fn) {
      testing::expect_error<Cancelled>(fn, "cancelled, because the disk is full");
    };
    if (world.rank() == 0) {
      const auto sum = world.all_reduce_async({tensor}, ReduceOp::kSum);
      const auto message = world.recv_async(tensor, {.rank = 1});
      expect_cancelled([&] { sum.wait(); });
      expect_cancelled([&] { message.wait(); });
    }
    if (world.rank() == 2) expect_cancelled([&] { group->barrier(); });
    expect_cancelled([&] { world.send(tensor, {.rank = (world.rank() + 1) % 3}); });
  });
}

TEST(Local, AGroupThatWasSplitNamesItsOwnMembers) {
  with_ranks(3, [](Communicator& world) {
    const auto pair = world.split(world.rank() == 1 ? -1 : 0, 0);
    if (!pair) return world.barrier();
    torch::Tensor tensor = torch::ones({pair->rank() + 1});
    testing::expect_error<FailedPrecondition>(
        [&] {
          pair->all_reduce({&tensor, 1}, ReduceOp::kSum);
        },
        "replica 2 calls all_reduce of Float[2]");
    world.barrier();
  });
}

TEST(Local, BroadcastCopiesTheRootsValues) {
  for (const int size : {1, 2, 3, 4}) {
    for (int root = 0; root < size; ++root) {
      with_ranks(size, [root](Communicator& world) {
        std::vector<torch::Tensor> tensors{torch::full({3}, world.rank()), torch::full({2, 2}, 10.0 * world.rank())};
        world.broadcast(tensors, root);
        EXPECT_TRUE(torch::equal(tensors[0], torch::full({3}, root)));
        EXPECT_TRUE(torch::equal(tensors[1], torch::full({2, 2}, 10.0 * root)));
      });
    }
  }
}

TEST(Local, AllGatherKeepsRankOrderAndUnevenRows) {
  for (const int size : {1, 2, 3, 5}) {
    with_ranks(size, [size](Communicator& world) {
      const auto parts = world.all_gather(torch::full({world.rank(), 2}, world.rank()));
      ASSERT_EQ(parts.size(), static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) {
        EXPECT_TRUE(torch::equal(parts[static_cast<std::size_t>(r)], torch::full({r, 2}, r)));
      }
    });
  }
}

TEST(Local, ReduceScatterReturnsTheOwnRowsOfTheSum) {
  for (const int size : {1, 2, 3}) {
    with_ranks(size, [size](Communicator& world) {
      const torch::Tensor mine = torch::arange(2 * size, torch::kDouble) * (world.rank() + 1);
      const torch::Tensor part = world.reduce_scatter(mine, ReduceOp::kSum);
      const double factor = size * (size + 1) / 2.0;
      EXPECT_TRUE(torch::equal(part, torch::arange(2 * world.rank(), 2 * world.rank() + 2, torch::kDouble) * factor));
    });
  }
}

TEST(Local, ReduceScatterWantsRowsThatDivide) {
  EXPECT_THROW(with_ranks(2, [](Communicator& world) { world.reduce_scatter(torch::zeros({3}), ReduceOp::kSum); }),
               InvalidArgument);
}

TEST(Local, BroadcastFromARankThatIsNotThereIsRefused) {
  EXPECT_THROW(with_ranks(2, [](Communicator& world) { world.broadcast({}, 2); }), InvalidArgument);
}

TEST(Local, AMismatchIsNamedOnEveryRank) {
  std::atomic<int> named{0};
  const auto mismatch = [&](Communicator& world) {
    torch::Tensor mine = torch::zeros({world.rank() == 1 ? 4 : 3});
    try {
      world.all_reduce({&mine, 1}, ReduceOp::kSum);
      FAIL() << "the mismatch was not noticed";
    } catch (const FailedPrecondition& error) {
      EXPECT_THAT(error.what(), HasSubstr("replica 0 calls all_reduce of Float[3]"));
      EXPECT_THAT(error.what(), HasSubstr("replica 1 calls all_reduce of Float[4]"));
      named.fetch_add(1);
    }
  };
  for (const int size : {2, 3}) {
    named = 0;
    with_ranks(size, mismatch);
    EXPECT_EQ(named.load(), size);
  }
}

TEST(Local, AnotherOperationOrDtypeIsAMismatch) {
  EXPECT_THROW(with_ranks(2,
                          [](Communicator& world) {
                            torch::Tensor mine = torch::zeros({2});
                            if (world.rank() == 0) {
                              world.all_reduce({&mine, 1}, ReduceOp::kSum);
                            } else {
                              world.all_reduce({&mine, 1}, ReduceOp::kMean);
                            }
                          }),
               FailedPrecondition);
  EXPECT_THROW(with_ranks(2,
                          [](Communicator& world) {
                            torch::Tensor mine = torch::zeros({2}, world.rank() == 0 ? torch::kFloat : torch::kDouble);
                            world.all_reduce({&mine, 1}, ReduceOp::kSum);
                          }),
               FailedPrecondition);
  EXPECT_THROW(with_ranks(2,
                          [](Communicator& world) {
                            if (world.rank() == 0) {
                              world.barrier();
                            } else {
                              world.all_gather(torch::zeros({2}));
                            }
                          }),
               FailedPrecondition);
}

TEST(Local, NonContiguousTensorsAreReducedInPlace) {
  with_ranks(2, [](Communicator& world) {
    const torch::Tensor base = torch::ones({4, 3});
    torch::Tensor column = base.select(1, 1);
    world.all_reduce({&column, 1}, ReduceOp::kSum);
    EXPECT_EQ(base.sum().item<double>(), 4 + 8 + 4);
  });
}

// Rank 1 fails while the others read from all.
TEST(Local, WhoFailsInACollectiveKeepsItsTensorsUntilTheOthersHaveStopped) {
  Rendezvous meeting(3, std::chrono::seconds(20), /*spin=*/false);
  std::atomic<bool> is_there = false;
  CrossDeviceSum sum = make_cross_device_sum("ring", std::vector<torch::Device>(3, torch::kCPU));
  sum.all_gather = [&](Rendezvous&, int rank, RankTensors) -> std::vector<torch::Tensor> {
    if (rank == 1) throw std::runtime_error("there is no memory");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(is_there);
    return {};
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto world = make_local(meeting, sum, rank);
      const auto gather = [&] {
        float memory = 1;
        if (rank == 1) is_there = true;
        const auto let_go = [&, rank](void*) {
          if (rank == 1) is_there = false;
        };
        (void)world->all_gather(torch::from_blob(&memory, {1}, let_go));
      };
      if (rank == 1) {
        testing::expect_error<std::runtime_error>(gather, "there is no memory");
      } else {
        testing::expect_error<Cancelled>(gather, "because replica 1 failed in all_gather: there is no memory");
      }
    });
  }
}

TEST(Local, SparseAndUndefinedTensorsAreRefused) {
  EXPECT_THROW(with_ranks(2,
                          [](Communicator& world) {
                            torch::Tensor none;
                            world.all_reduce({&none, 1}, ReduceOp::kSum);
                          }),
               InvalidArgument);
}

}  // namespace
}  // namespace cohort::local_test
