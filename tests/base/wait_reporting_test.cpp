#include "base/wait_reporting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace cohort::wait_reporting_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;

TEST(WaitReport, SaysEverySoOftenWhatIsMissing) {
  const WaitReport::Time begin{};
  WaitReport report({.who = "[test] a", .in = "the barrier b", .limit = seconds(60), .report_interval = seconds(5)},
                    begin);
  EXPECT_FALSE(report.due(begin + seconds(4)));
  EXPECT_TRUE(report.due(begin + seconds(5)));
  EXPECT_FALSE(report.due(begin + seconds(9)));
  EXPECT_TRUE(report.due(begin + seconds(12)));
  EXPECT_FALSE(report.due(begin + seconds(16)));
  EXPECT_EQ(report.text("c, d", begin + seconds(12)), "[test] a waits in the barrier b for c, d (12 s of 60 s)");
}

TEST(WaitReport, LeavesOutWhatHasNoName) {
  const WaitReport report({.limit = seconds(9)}, {});
  EXPECT_EQ(report.text("c", WaitReport::Time(seconds(1))), "waits for c (1 s of 9 s)");
}

TEST(WaitReport, EndsWithTheErrorThatIsWanted) {
  WaitReport report({.who = "[test] a", .limit = milliseconds(1500)}, {});
  report.go_on<Unavailable>("c", WaitReport::Time(milliseconds(1499)));
  EXPECT_FALSE(report.over(WaitReport::Time(milliseconds(1499))));
  EXPECT_TRUE(report.over(WaitReport::Time(milliseconds(1500))));
  expect_error<Unavailable>([&] { report.go_on<Unavailable>("c", WaitReport::Time(seconds(2))); },
                            "[test] a waited 1.5 s for c");
}

TEST(WaitReporting, TriesUntilNothingIsMissing) {
  int tries = 0;
  wait_reporting({.limit = seconds(60), .pause = milliseconds(1)}, [&](const Deadline& deadline) -> std::string {
    EXPECT_EQ(deadline.limit(), seconds(60));
    return ++tries < 3 ? "more" : "";
  });
  EXPECT_EQ(tries, 3);
}

TEST(WaitReporting, NamesWhatIsMissingAtTheEnd) {
  const auto never = [](const Deadline&) -> std::string { return "c"; };
  const WaitOptions options{.who = "[test] a", .in = "b", .limit = milliseconds(20), .pause = milliseconds(5)};
  expect_error<DeadlineExceeded>([&] { wait_reporting(options, never); }, "[test] a waited 20 ms in b for c");
  expect_error<Unavailable>([&] { wait_reporting<Unavailable>(options, never); }, "[test] a waited 20 ms in b for c");
  const auto broken = [](const Deadline&) -> std::string { throw NotFound("[test] nobody"); };
  expect_error<NotFound>([&] { wait_reporting(options, broken); }, "[test] nobody");
}

}  // namespace
}  // namespace cohort::wait_reporting_test
