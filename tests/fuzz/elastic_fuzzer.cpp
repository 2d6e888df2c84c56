// Conversations of an elastic run: launchers, strangers among them, report anything, in any order and at any time. What
// the leader takes for a report is answered with an order that a launcher would take; the workers of a round have
// different ranks of the same world. A launcher takes no order but one that it can carry out, whatever comes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "tests/fuzz/entry.h"
#include "tests/fuzz/numbers.h"
#include "wings/launch/elastic/roster.h"

namespace cohort::fuzz::elastic_fuzzer {
namespace {

using namespace cohort::cli;  // NOLINT(google-build-using-namespace)
using std::chrono::milliseconds;

class Conversation {
 public:
  explicit Conversation(Numbers numbers)
      : numbers_(numbers),
        roster_({.least = 2, .most = 4, .join_timeout = std::chrono::seconds(60)}, AgentRoster::Time()) {}

  void run() {
    while (!numbers_.empty()) step();
    roster_.finish(3);
    (void)roster_.heard_by_all(now_ + std::chrono::hours(1));
  }

 private:
  void step() {
    hear_anything();
    now_ += milliseconds(numbers_.below(4) == 0 ? numbers_.below(250) * 50 : 100);
    if (numbers_.below(64) == 0) return roster_.finish(numbers_.below(4));
    const int which = numbers_.below(4);
    Report& report = reports_[which];
    change(report, which);
    if (misfit(report)) return;
    int& workers = workers_[{report.agent(), report.id()}];
    workers = std::max(workers, report.workers());
    const Order order = roster_.exchange(report, now_);
    (void)roster_.take_news();
    require(!misfit(order, std::max(1, workers)), "an order does not fit");
    if (order.kind() == Order::RUN) require_place(which, order);
    follow(report, order);
  }
  // A leader that orders anything.
  void hear_anything() {
    constexpr int kProcesses = 3;
    const auto any = [&] { return static_cast<int>(numbers_.any()); };
    Order order;
    order.set_kind(static_cast<Order::Kind>(numbers_.below(8) == 0 ? any() : static_cast<int>(Order::RUN)));
    order.set_round(numbers_.any());
    order.set_first_rank(any());
    order.set_workers(any());
    order.set_world(any());
    order.set_group(any());
    order.set_master_host(std::string(numbers_.count(), 'h'));
    order.set_master_port(any());
    order.set_code(any());
    if (misfit(order, kProcesses)) return;
    require(order.code() >= 0 && order.code() < 256, "a status is none");
    if (order.kind() != Order::RUN) return;
    require(order.round() > 0 && order.group() >= 0, "a round or a group has no number");
    require(order.workers() > 0 && order.workers() <= kProcesses, "there are not so many workers");
    const int64_t end = int64_t{order.first_rank()} + order.workers();
    require(order.first_rank() >= 0 && end <= order.world(), "a rank is not one of the world");
    require(!order.master_host().empty() && order.master_port() > 0 && order.master_port() < 65536, "nobody is there");
  }
  // What a launcher has to say, or something else.
  void change(Report& report, int which) {
    if (report.agent().empty()) {
      report.set_agent(std::to_string(which));
      report.set_host("h");
      report.set_port(1);
      report.set_workers(1 + numbers_.below(3));
      report.set_id(static_cast<uint64_t>(which));
    }
    report.set_number(report.number() + 1);
    switch (numbers_.below(16)) {
      case 0:
        return report.set_running(!report.running());
      case 1:
        return report.set_round(numbers_.any());
      case 2:
        return report.set_code(static_cast<int>(numbers_.any()));
      case 3:
        return report.set_workers(static_cast<int>(numbers_.any()));
      case 4:
        return report.set_leaving(!report.leaving());
      case 5:
        return report.set_id(static_cast<uint64_t>(numbers_.any()));
      case 6:
        return report.set_agent(std::to_string(numbers_.below(5)));
      case 7:
        report.set_asked(!report.asked());
        return report.set_by_signal(!report.by_signal());
      case 8:
        return report.set_number(report.number() - 1);  // it is sent again
      default:
        return;
    }
  }
  static void follow(Report& report, const Order& order) {
    if (order.kind() == Order::RUN && order.round() != report.round()) {
      report.set_round(order.round());
      report.set_running(true);
    } else if (order.kind() != Order::RUN && report.running()) {
      report.set_running(false);
      report.set_asked(true);
    }
  }
  // The latest orders of a round give different ranks.
  void require_place(int which, const Order& order) {
    if (order.round() != round_) places_.clear();
    require(order.round() >= round_, "a round comes back");
    round_ = order.round();
    require(order.world() >= 2 && order.world() <= 4, "the world has another size");
    places_[order.first_rank()] = order.workers();
    int end = 0;
    for (const auto& [first, count] : places_) {
      require(first >= end, "workers share a rank");
      end = first + count;
    }
    require(end <= order.world(), "a rank is beyond the world");
  }

  Numbers numbers_;
  AgentRoster roster_;
  AgentRoster::Time now_{};
  std::map<int, Report> reports_;
  std::map<std::pair<std::string, uint64_t>, int> workers_;  // the most that a launcher has said it has
  int64_t round_ = 0;
  std::map<int, int> places_;
};

}  // namespace

COHORT_FUZZER_ENTRY(elastic)(const uint8_t* data, std::size_t size) {
  Conversation(Numbers(data, size)).run();
  return 0;
}

}  // namespace cohort::fuzz::elastic_fuzzer
