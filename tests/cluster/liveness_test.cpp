#include "cluster/liveness.h"

#include <gtest/gtest.h>

namespace cohort::liveness_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Liveness::Time kBegin{};

TEST(Liveness, APeerIsTheProcessThatHasEntered) {
  Liveness peer{seconds(4)};
  EXPECT_FALSE(peer.entered());
  EXPECT_FALSE(peer.is(0)) << "nobody is there";
  peer.enter(7, kBegin);
  EXPECT_TRUE(peer.is(7));
  peer.enter(8, kBegin + seconds(1));
  EXPECT_FALSE(peer.is(7));
  EXPECT_EQ(peer.incarnation(), 8U);
}

TEST(Liveness, SilenceLosesItAndASignOfLifeBringsItBack) {
  Liveness peer{seconds(4)};
  peer.enter(7, kBegin);
  EXPECT_FALSE(peer.lost(kBegin + milliseconds(3999)));
  EXPECT_TRUE(peer.lost(kBegin + seconds(4)));
  peer.hear(kBegin + seconds(4));
  EXPECT_FALSE(peer.lost(kBegin + seconds(5)));
  EXPECT_EQ(peer.silence(kBegin + seconds(5)), seconds(1));
}

TEST(Liveness, ASuspectedPeerIsLostAtOnceUntilItIsHeardOf) {
  Liveness peer{seconds(4)};
  peer.enter(7, kBegin);
  peer.suspect();
  EXPECT_TRUE(peer.suspected());
  EXPECT_TRUE(peer.lost(kBegin));
  peer.hear(kBegin + seconds(1));
  EXPECT_FALSE(peer.suspected());
  EXPECT_FALSE(peer.lost(kBegin + seconds(1)));
}

TEST(Liveness, APlaceIsDefendedByBeingHeardOfAWhileAfterItWasContested) {
  Liveness peer{seconds(4)};
  peer.enter(7, kBegin);
  peer.contest(9, kBegin + seconds(10));
  EXPECT_FALSE(peer.resists());
  peer.hear(kBegin + seconds(11));
  EXPECT_FALSE(peer.resists()) << "that may have been under way";
  peer.contest(9, kBegin + seconds(11));  // asks again: the first time counts
  peer.hear(kBegin + milliseconds(11001));
  EXPECT_TRUE(peer.resists());
  peer.contest(10, kBegin + seconds(12));  // a third process
  EXPECT_FALSE(peer.resists());
}

}  // namespace
}  // namespace cohort::liveness_test
