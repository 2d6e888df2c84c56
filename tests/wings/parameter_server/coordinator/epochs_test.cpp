#include "wings/parameter_server/coordinator/epochs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::epochs_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;

TEST(Epochs, GrowFromCoordinatorToCoordinator) {
  const TemporaryFolder folder;
  const Epochs epochs(folder.path());
  EXPECT_EQ(epochs.latest(), 0U);
  EXPECT_EQ(epochs.claim(1), 1U);
  EXPECT_EQ(epochs.claim(1), 2U);
  EXPECT_EQ(epochs.claim(40), 40U) << "a server knew of it";
  EXPECT_EQ(epochs.latest(), 40U);
  EXPECT_FALSE(std::filesystem::exists(folder / "epoch.2")) << "earlier ones are removed";
  testing::write_file(folder / "epoch.50.tmp", "");
  testing::write_file(folder / "epoch.x", "");
  EXPECT_EQ(epochs.claim(1), 41U);
}

// A coordinator that was stopped before it claimed the first epoch goes on when a later one has removed it.
TEST(Epochs, NoneIsGivenTwice) {
  const TemporaryFolder folder;
  const Epochs epochs(folder.path());
  EXPECT_EQ(epochs.claim(7), 7U);
  for (const uint64_t epoch : {3, 7}) EXPECT_FALSE(epochs.take(epoch)) << epoch;
  EXPECT_TRUE(epochs.take(9));
  EXPECT_EQ(epochs.claim(8), 10U);
  constexpr int kCoordinators = 8;
  constexpr int kTimes = 50;
  std::vector<std::vector<uint64_t>> claimed(kCoordinators);
  {
    std::vector<std::jthread> coordinators;
    for (auto& own : claimed) {
      coordinators.emplace_back([&epochs, &own] {
        for (int i = 0; i < kTimes; ++i) own.push_back(epochs.claim(1));
      });
    }
  }
  std::vector<uint64_t> all;
  for (const auto& own : claimed) {
    EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  EXPECT_EQ(epochs.latest(), all.back());
}

TEST(Epochs, WithoutADirectoryNothingIsNoted) {
  const Epochs epochs("");
  EXPECT_EQ(epochs.claim(3), 3U);
  EXPECT_EQ(epochs.claim(3), 3U);
  EXPECT_EQ(epochs.latest(), 0U);
  expect_error<Unavailable>([] { (void)Epochs("/nowhere/at/all").latest(); }, "/nowhere/at/all: cannot be read");
}

}  // namespace
}  // namespace cohort::epochs_test
