// What is Gloo's own. That it does what every back end must is in tests/collective/process/transports_test.cpp.
#include "wings/gloo/collective/gloo.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "collective/process/engine_calls.h"
#include "tests/collective/process/conformance.h"
#include "tests/support/process_ranks.h"
#include "tests/support/secret.h"

namespace cohort::gloo_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::with_process_ranks;

// Where the ranks of a group that knows nobody else leave each other texts.
class Board {
 public:
  void put(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    texts_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return texts_.contains(key); })) throw DeadlineExceeded("no " + key);
    return texts_.at(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> texts_;
};

Meeting meeting_at(Board& board, int rank, int size, milliseconds timeout = seconds(20)) {
  return {.rank = rank,
          .size = size,
          .host = "127.0.0.1",
          .timeout = timeout,
          .put = [&](const std::string& key, const std::string& value) { board.put(key, value); },
          .get = [&](const std::string& key, milliseconds limit) { return board.get(key, limit); }};
}

// Runs fn(engine, rank) as each rank.
void with_engines(int size, milliseconds timeout, const std::function<void(Engine&, int)>& fn) {
  Board board;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const torch::NoGradGuard no_grad;
      EXPECT_NO_THROW(fn(*make_gloo_engine(meeting_at(board, rank, size, timeout)), rank));
    });
  }
}

TEST(GlooTest, AnAddressThatIsNotThisMachinesIsRefused) {
  EXPECT_THAT(error_of<Unavailable>([] { make_gloo_engine({.size = 1, .host = "192.0.2.1"}); }),
              HasSubstr("rank 0 at 192.0.2.1 cannot connect"));
}

// Rank 0 is slow to look for the others, who have connected to it meanwhile and leave.
TEST(GlooTest, NobodyLeavesBeforeAllAreConnected) {
  for (int round = 0; round < 4; ++round) {
    Board board;
    const auto join = [&](int rank) {
      Meeting meeting = meeting_at(board, rank, 3);
      meeting.get = [&, rank](const std::string& key, milliseconds timeout) {
        if (rank == 0) std::this_thread::sleep_for(milliseconds(50));
        return board.get(key, timeout);
      };
      (void)make_gloo_engine(meeting);
    };
    std::vector<std::jthread> others;
    for (const int rank : {1, 2}) {
      others.emplace_back([&, rank] { EXPECT_NO_THROW(join(rank)); });
    }
    EXPECT_NO_THROW(join(0));
  }
}

// Pieces of any sizes, for numbers of ranks that are powers of two and that are not.
TEST(GlooTest, AddsUpPiecesOfAllSizes) {
  for (const int size : {2, 3, 4, 6, 8}) {
    with_engines(size, seconds(20), [size](Engine& engine, int rank) {
      for (int round = 0; round < 40; ++round) {
        std::vector<torch::Tensor> pieces;
        for (int r = 0; r < size; ++r) {
          const int64_t count = round % 2 == 0 ? 1 + 37 * round : (r * 7 + round) % 5 * (round < 20 ? 1 : 1000);
          pieces.push_back(torch::arange(count, torch::kDouble) * (rank + 1) + r);
        }
        const torch::Tensor sum = engine_pieces(engine, pieces, rank);
        const torch::Tensor expected =
            torch::arange(sum.numel(), torch::kDouble) * (size * (size + 1) / 2) + size * rank;
        EXPECT_TRUE(torch::equal(sum, expected)) << size << " ranks, round " << round;
      }
    });
  }
}

// Large pieces, with ranks that come at different times: what is still to be sent is not written to.
TEST(GlooTest, AddsUpLargePiecesOfRanksThatAreLate) {
  for (const int size : {2, 4}) {
    with_engines(size, seconds(60), [size](Engine& engine, int rank) {
      for (int round = 0; round < 6; ++round) {
        const std::vector<torch::Tensor> pieces(static_cast<std::size_t>(size), torch::full({500'000}, rank + round));
        std::this_thread::sleep_for(milliseconds((rank + round) % size * 10));
        const torch::Tensor sum = engine_pieces(engine, pieces, rank);
        EXPECT_TRUE(torch::equal(sum, torch::full({500'000}, size * (size - 1) / 2 + size * round))) << round;
      }
    });
  }
}

TEST(GlooTest, AnAbortEndsTheCallThatWaits) {
  for (const bool in_pieces : {false, true}) {
    with_engines(2, seconds(60), [in_pieces](Engine& engine, int rank) {
      if (rank == 1) return std::this_thread::sleep_for(seconds(2));  // its connections stay
      const std::jthread other([&] {
        std::this_thread::sleep_for(milliseconds(200));
        engine.abort();
      });
      const torch::Tensor tensor = torch::ones({1'000'000});
      const auto call = [&] {
        in_pieces ? (void)engine_pieces(engine, {tensor, tensor}, 0) : engine_sum(engine, tensor);
      };
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_ANY_THROW(call());
      EXPECT_ANY_THROW(call()) << "and what comes later";
      EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30)) << "not at its deadline";
    });
  }
}

TEST(GlooTest, AWaitEndsAtTheDeadline) {
  with_engines(2, seconds(1), [](Engine& engine, int rank) {
    if (rank == 1) return std::this_thread::sleep_for(seconds(3));
    EXPECT_ANY_THROW(engine_sum(engine, torch::ones({3})));
  });
}

TEST(GlooTest, AJobWithASecretIsRefused) {
  expect_error<InvalidArgument>(
      [] { (void)make_gloo({.host = "127.0.0.1", .identity = testing::identity_of("0123456789abcdef")}); },
      "[collective] gloo: this job has a secret or certificates");
}

TEST(GlooTest, ChoosesItsOwnAlgorithm) {
  expect_error<InvalidArgument>(
      [] {
        with_process_ranks(2, {.transport = "gloo", .algorithm = "tree"}, [](ProcessCommunicator&, Membership&) {});
      },
      "[collective] gloo: the algorithm is \"tree\", but gloo chooses its own");
}

// Of one machine all ranks share memory; what goes to another machine is Gloo's to add up.
TEST(GlooTest, AddsUpWhatGoesFromMachineToMachine) {
  for (const std::vector<std::string>& machines : {std::vector<std::string>{"a", "a", "a"}, {"a", "a", "b"}}) {
    with_process_ranks(3, {.transport = "gloo", .machines = machines}, [&](ProcessCommunicator& world, Membership&) {
      torch::Tensor sum = world.shared_zeros(1000, torch::kFloat).fill_(world.rank() + 1);
      EXPECT_EQ(world.adds_in_memory(sum), machines[0] == machines[2]);
      world.all_reduce({&sum, 1}, ReduceOp::kSum);
      EXPECT_TRUE(torch::equal(sum, torch::full({1000}, 6.0F)));
    });
  }
}

}  // namespace
}  // namespace cohort::gloo_test
