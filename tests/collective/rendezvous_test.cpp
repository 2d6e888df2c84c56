#include "collective/local/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cohort/error.h"

namespace cohort::rendezvous_test {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

// Returns what the given call throws, as text; empty when it does not throw.
template <typename Kind, typename Fn>
std::string message_of(const Fn& fn) {
  try {
    fn();
  } catch (const Kind& error) {
    return error.what();
  }
  return {};
}

TEST(Rendezvous, GivesEveryRankWhatTheOthersBrought) {
  constexpr int kRanks = 4;
  Rendezvous meeting(kRanks, 20s, /*spin=*/false);
  std::atomic<int> sum{0};
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        for (int round = 0; round < 200; ++round) {
          int mine = rank + round;
          meeting.arrive(rank, {.what = "test"}, &mine);
          int total = 0;
          for (int other = 0; other < kRanks; ++other) total += *static_cast<int*>(meeting.data(other));
          meeting.depart(rank);
          if (total == 6 + 4 * round) sum.fetch_add(1);
        }
      });
    }
  }
  EXPECT_EQ(sum.load(), kRanks * 200);
}

// Returns what the first two of three ranks say when the third one does not come.
std::string without_the_third() {
  Rendezvous meeting(3, 50ms, /*spin=*/true);
  std::array<std::string, 2> said;
  {
    std::latch together(2);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        together.arrive_and_wait();
        said.at(static_cast<std::size_t>(rank)) =
            message_of<Error>([&] { meeting.arrive(rank, {.what = "all_reduce"}, nullptr); });
      });
    }
  }
  EXPECT_TRUE(meeting.aborted());
  return said[0] + said[1];
}

// What those brought who were there before is gone with them.
TEST(Rendezvous, WhoComesTooLateMeetsNobody) {
  for (const bool spin : {false, true}) {
    Rendezvous aborted(2, 20s, spin);
    aborted.abort("enough");
    for (const int rank : {0, 1}) {
      EXPECT_THAT(message_of<Cancelled>([&] { aborted.arrive(rank, {.what = "barrier"}, nullptr); }),
                  HasSubstr("because enough"));
    }
    Rendezvous late(2, 1ms, spin);
    EXPECT_THAT(message_of<DeadlineExceeded>([&] { late.arrive(0, {.what = "barrier"}, nullptr); }),
                HasSubstr("waited 1 ms in barrier for replica(s) 1"));
    EXPECT_THAT(message_of<Cancelled>([&] { late.arrive(1, {.what = "barrier"}, nullptr); }),
                HasSubstr("because [collective] replica 0 waited 1 ms"));
  }
}

// One is aborted while the others come: either all meet or nobody does.
TEST(Rendezvous, AnAbortIsTheSameForAll) {
  constexpr int kRanks = 3;
  for (int round = 0; round < 20; ++round) {
    Rendezvous meeting(kRanks, 20s, /*spin=*/round % 2 == 0);
    std::atomic<int> met{0};
    {
      std::latch together(kRanks + 1);
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
          const auto mine = std::make_unique<int>(rank);
          together.arrive_and_wait();
          const std::string cancelled = message_of<Cancelled>([&] {
            meeting.arrive(rank, {.what = "test"}, mine.get());
            int total = 0;
            for (int other = 0; other < kRanks; ++other) total += *static_cast<int*>(meeting.data(other));
            EXPECT_EQ(total, 3);
            meeting.depart(rank);
            ++met;
          });
        });
      }
      together.arrive_and_wait();
      meeting.abort("enough");
    }
    EXPECT_EQ(met.load() % kRanks, 0) << met;
  }
}

TEST(Rendezvous, NamesTheRankThatDoesNotCome) {
  std::string said = without_the_third();
  // On a busy machine the second one may be missing at the deadline, too.
  for (int i = 0; i < 20 && said.find("for replica(s) 2") == std::string::npos; ++i) said = without_the_third();
  EXPECT_THAT(said, HasSubstr("waited 50 ms in all_reduce for replica(s) 2"));
}

TEST(Rendezvous, ARankThatHasLeftIsNamedAtOnce) {
  Rendezvous meeting(2, 1h, /*spin=*/true);
  std::jthread other([&] {
    std::this_thread::sleep_for(20ms);
    meeting.leave(1);
  });
  const std::string message =
      message_of<FailedPrecondition>([&] { meeting.arrive(0, {.what = "merge_call"}, nullptr); });
  EXPECT_THAT(message, HasSubstr("replica 0 waits in merge_call for replica 1, which has already returned"));
}

TEST(Rendezvous, AnAbortEndsTheWaitWithItsReason) {
  Rendezvous meeting(2, 1h, /*spin=*/false);
  std::jthread other([&] {
    std::this_thread::sleep_for(20ms);
    meeting.abort("the disk is full");
    meeting.abort("a later reason");
  });
  const std::string message = message_of<Cancelled>([&] { meeting.arrive(0, {.what = "barrier"}, nullptr); });
  EXPECT_THAT(message, HasSubstr("replica 0 in barrier: cancelled, because the disk is full"));
}

TEST(Rendezvous, WorksAgainAfterAReset) {
  Rendezvous meeting(2, 1h, /*spin=*/true);
  meeting.abort("x");
  EXPECT_THROW(meeting.arrive(0, {.what = "a"}, nullptr), Cancelled);
  meeting.reset();
  std::jthread other([&] {
    meeting.arrive(1, {.what = "a"}, nullptr);
    meeting.depart(1);
  });
  meeting.arrive(0, {.what = "a"}, nullptr);
  meeting.depart(0);
}

// Rank 0 fails while the others read what it brought, one of them in a second phase.
TEST(Rendezvous, WhoFailsInAnOperationIsThereUntilTheOthersHaveStopped) {
  for (const bool spin : {false, true}) {
    Rendezvous meeting(3, 20s, spin);
    std::atomic<bool> is_there = false;
    const auto operation = [&](int rank) {
      struct Brought {
        explicit Brought(std::atomic<bool>& there) : is_there(there) { is_there = true; }
        Brought(const Brought&) = delete;
        Brought& operator=(const Brought&) = delete;
        ~Brought() { is_there = false; }
        std::atomic<bool>& is_there;
      };
      std::optional<Brought> brought;
      if (rank == 0) brought.emplace(is_there);
      meeting.arrive(rank, {.what = "copy"}, nullptr);
      meeting.finish(rank, [&] {
        if (rank == 0) throw std::runtime_error("there is no memory");
        std::this_thread::sleep_for(20ms);
        EXPECT_TRUE(is_there);
        if (rank == 1) meeting.sync(rank);
        EXPECT_EQ(rank, 2) << "it went on";
      });
    };
    const auto expect_end = [&](int rank) {
      if (rank == 0) {
        EXPECT_EQ(message_of<std::runtime_error>([&] { operation(rank); }), "there is no memory");
      } else {
        EXPECT_THAT(message_of<Cancelled>([&] { operation(rank); }),
                    HasSubstr("because replica 0 failed in copy: there is no memory"));
      }
      EXPECT_THAT(message_of<Cancelled>([&] { meeting.arrive(rank, {.what = "barrier"}, nullptr); }),
                  HasSubstr("in barrier: cancelled, because replica 0 failed in copy"));
    };
    const auto on_all = [&](const std::function<void(int)>& fn) {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < 3; ++rank) threads.emplace_back([&fn, rank] { fn(rank); });
    };
    on_all(expect_end);
    EXPECT_FALSE(meeting.aborted());
    meeting.reopen();
    on_all([&](int rank) {
      meeting.arrive(rank, {.what = "copy"}, nullptr);
      meeting.finish(rank, [&] { meeting.sync(rank); });
    });
  }
}

TEST(Rendezvous, LettersThatNobodyTookDoNotReachTheNextRun) {
  Rendezvous meeting(2, 1h, /*spin=*/false);
  meeting.post(0, 1, {.tensor = torch::ones({1}), .tag = 1});
  meeting.reopen();
  meeting.post(0, 1, {.tensor = torch::ones({1}), .tag = 2});
  EXPECT_EQ(meeting.take(0, 1).tag, 2);
}

TEST(Rendezvous, WhoWaitsForALetterWhenTheRunEndsIsTold) {
  Rendezvous meeting(2, 1h, /*spin=*/false);
  const auto branch = meeting.branch({1, 0});
  for (Rendezvous* const where : {&meeting, branch.get()}) {
    for (const bool failed : {false, true}) {
      std::atomic<bool> told = false;
      std::jthread other([&] {
        while (!told) {  // once more, in case that nobody waited yet
          std::this_thread::sleep_for(20ms);
          failed ? meeting.reset() : meeting.reopen();
        }
      });
      const std::string message = message_of<Cancelled>([&] { (void)where->take(0, 1); });
      told = true;
      EXPECT_THAT(message, HasSubstr("in recv: cancelled, because the replicas have returned"));
    }
  }
}

TEST(Rendezvous, ABranchSharesTheFateOfItsTree) {
  Rendezvous meeting(3, 1h, /*spin=*/false);
  meeting.leave(2);
  const auto branch = meeting.branch({2, 0});
  EXPECT_THAT(message_of<FailedPrecondition>([&] { branch->arrive(1, {.what = "barrier"}, nullptr); }),
              HasSubstr("replica 0 waits in barrier for replica 2, which has already returned"));
  meeting.abort("x");
  EXPECT_TRUE(branch->aborted());
  EXPECT_TRUE(meeting.branch({0, 1})->aborted());
  EXPECT_TRUE(meeting.background()->aborted());
  const auto before = meeting.background();
  meeting.reset();
  EXPECT_FALSE(branch->aborted());
  EXPECT_NE(meeting.background(), before) << "somebody may still be inside the old one";
  EXPECT_FALSE(meeting.background()->aborted());
}

}  // namespace
}  // namespace cohort::rendezvous_test
