#include "wings/launch/elastic/agent.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/files.h"
#include "wings/launch/elastic/lease.h"

namespace cohort::cli::agent_test {
namespace {

using cohort::testing::TemporaryFolder;
using std::chrono::milliseconds;
using std::chrono::seconds;

Order order_of(Order::Kind kind) {
  Order order;
  order.set_kind(kind);
  if (kind != Order::RUN) return order;
  order.set_round(1);
  order.set_workers(1);
  order.set_world(1);
  order.set_group(0);
  order.set_master_host("127.0.0.1");
  order.set_master_port(1);
  return order;
}

// A leader that is silent, when the worker runs, until just before the lease ends. The next answer comes after the end:
// the report that it is for was sent before.
class LeaderThatAnswersTooLate final : public Leader {
 public:
  explicit LeaderThatAnswersTooLate(std::filesystem::path worker) : worker_(std::move(worker)) {}

  std::optional<Order> exchange(const Report& report) override {
    if (report.round() == 0 || !std::filesystem::exists(worker_)) {
      given_ = std::chrono::steady_clock::now();
    } else if (!report.running()) {
      last_ = report;
      return order_of(Order::EXIT);
    } else if (!was_silent_) {
      was_silent_ = true;
      std::this_thread::sleep_until(given_ + kLeaseAtAgent - milliseconds(500));
      return std::nullopt;
    } else {
      wait_for_the_workers_end();
    }
    return order_of(Order::RUN);
  }

  const Report& last() const { return last_; }

 private:
  void wait_for_the_workers_end() const {
    const auto end = std::chrono::steady_clock::now() + seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      pid_t pid = 0;
      if (std::ifstream(worker_) >> pid && ::kill(pid, 0) != 0) return;
      std::this_thread::sleep_for(milliseconds(10));
    }
    ADD_FAILURE() << "the guard lets the worker live";
  }

  std::filesystem::path worker_;
  std::chrono::steady_clock::time_point given_;
  bool was_silent_ = false;
  Report last_;
};

TEST(AgentTest, AWorkerWhoseLeaseEndsBeforeTheAnswerComesHasNotFailed) {
  const TemporaryFolder folder;
  const std::filesystem::path worker = folder / "worker";
  Guard guard;
  const Signals signals;
  LeaderThatAnswersTooLate leader(worker);
  const AgentOptions options{.launch = {.program = {"sh", "-c",
                                                    "echo $$ > " + worker.string() + "_ && mv " + worker.string() +
                                                        "_ " + worker.string() + " && exec sleep 90"}},
                             .host = "127.0.0.1",
                             .join_timeout = seconds(60),
                             .group = [](int64_t) { return GroupOptions{}; }};
  EXPECT_EQ(run_agent(leader, options, signals, guard), 0);
  EXPECT_EQ(leader.last().code(), 128 + SIGKILL) << "the guard has killed it";
  EXPECT_TRUE(leader.last().asked()) << "as if it had been told to end";
}

}  // namespace
}  // namespace cohort::cli::agent_test
