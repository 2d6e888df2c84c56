// Messages between launchers that no launcher sends.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "wings/launch/elastic/roster.h"

namespace cohort::cli::misfit_test {
namespace {

TEST(Misfit, ReportsAndOrdersThatCannotBeMeantAreFound) {
  Report good;
  good.set_agent("a");
  good.set_host("a");
  good.set_port(1000);
  good.set_workers(2);
  EXPECT_EQ(misfit(good), std::nullopt);
  const auto wrong = [&](const auto& change) {
    Report report = good;
    change(report);
    return misfit(report).value_or("");
  };
  EXPECT_EQ(wrong([](Report& report) { report.set_workers(-1); }), "it has -1 workers");
  EXPECT_EQ(wrong([](Report& report) { report.set_workers(INT32_MAX); }), "it has 2147483647 workers");
  EXPECT_EQ(wrong([](Report& report) { report.set_port(70'000); }), "its port is 70000");
  EXPECT_EQ(wrong([](Report& report) { report.set_code(256); }), "its status is 256");  // which exits with 0
  EXPECT_EQ(wrong([](Report& report) { report.set_round(-1); }), "its round is -1");
  EXPECT_EQ(wrong([](Report& report) { report.clear_host(); }), "its agent or its host has no name");

  Order run;
  run.set_kind(Order::RUN);
  run.set_round(1);
  run.set_workers(2);
  run.set_world(4);
  run.set_first_rank(2);
  run.set_master_host("a");
  run.set_master_port(1000);
  EXPECT_EQ(misfit(run, 2), std::nullopt);
  EXPECT_EQ(misfit(run, 1).value_or(""), "it wants 2 workers, there are 1");
  run.set_world(3);
  EXPECT_EQ(misfit(run, 2).value_or(""), "it has ranks from 2 on of 3 for group 0");
  run.set_world(std::numeric_limits<int>::min());
  EXPECT_EQ(misfit(run, 2).value_or(""), "it has ranks from 2 on of -2147483648 for group 0");
  run.set_world(4);
  run.set_master_port(0);
  EXPECT_EQ(misfit(run, 2).value_or(""), "it names a:0 for worker 0");
  run.set_kind(static_cast<Order::Kind>(7));
  EXPECT_EQ(misfit(run, 2).value_or(""), "its kind is 7");
}

}  // namespace
}  // namespace cohort::cli::misfit_test
