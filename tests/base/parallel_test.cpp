#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace cohort {
namespace {

// Three threads, made anew for each loop.
const LoopTeam::Run kThreads = [](const std::function<void(int)>& piece) {
  std::vector<std::thread> others;
  for (int number = 1; number < 3; ++number) others.emplace_back(piece, number);
  piece(0);
  for (std::thread& other : others) other.join();
};

TEST(LoopTeam, DividesTheLoopsOfItsThread) {
  std::vector<std::thread::id> by(300);
  std::vector<int> visits(by.size());
  const auto note = [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      by[i] = std::this_thread::get_id();
      ++visits[i];
    }
  };
  {
    const LoopTeam team(3, kThreads);
    parallel_for(300, 10, note);
  }
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
  EXPECT_EQ(by[99], by[0]);
  EXPECT_NE(by[100], by[0]);
  EXPECT_NE(by[200], by[100]);
  parallel_for(300, 300, note);
  EXPECT_EQ(by[299], std::this_thread::get_id()) << "without a team";
}

TEST(LoopTeam, LeavesShortLoopsAndThoseOfAPieceWhole) {
  const LoopTeam team(3, kThreads);
  std::atomic<int> calls = 0;
  parallel_for(10, 10, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(end - begin, 10);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
  std::atomic<int64_t> within = 0;
  parallel_for(2, 1, [&](int64_t, int64_t) {
    parallel_for(1000, 1000, [&](int64_t begin, int64_t end) { within += end - begin; });
  });
  EXPECT_EQ(within, 2000) << "two pieces, since there are two elements";
}

TEST(LoopTeam, ThrowsWhatAPieceThrowsWhenAllAreBack) {
  const LoopTeam team(3, kThreads);
  std::atomic<int> pieces = 0;
  EXPECT_THROW(parallel_for(300, 1,
                            [&](int64_t begin, int64_t end) {
                              ++pieces;
                              if (begin <= 150 && end > 150) throw std::runtime_error("150");
                            }),
               std::runtime_error);
  EXPECT_GE(pieces, 3);
  int64_t seen = 0;
  parallel_for(1, 1, [&](int64_t, int64_t end) { seen = end; });
  EXPECT_EQ(seen, 1) << "the team is there again";
}

}  // namespace
}  // namespace cohort
