// Elastic runs in one thread, from a seed: a leader and up to four launchers with their workers, which are killed,
// stopped and cut off, and whose clocks differ by up to a tenth. The leader's decisions are those of its Roster. No
// worker may begin a round while one of another round runs, and everything has to end. docs/reliability.md says what is
// simulated.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/elastic_agent.h"
#include "tests/simulation/seeds.h"
#include "tests/simulation/world.h"

namespace cohort::simulation::elastic_test {
namespace {

constexpr int kMostAgents = 4;
constexpr int64_t kTrouble = 60'000;    // ms; then nothing goes wrong any more
constexpr int64_t kPatience = 300'000;  // ms after that, in which everything has to end
constexpr uint64_t kSeeds = 5000;

class ElasticRun {
 public:
  ElasticRun(uint64_t seed, World::History history)
      : world_(seed, history),
        roster_({.least = 1, .most = 2 + static_cast<int>(world_.draw(5)), .join_timeout = std::chrono::seconds(60)},
                time_of(world_, kLeaderNode)) {
    constexpr int kMostDrift = 100;  // thousandths
    world_.set_drift(kLeaderNode, static_cast<int>(world_.between(-kMostDrift, kMostDrift)));
    for (int i = 0; i < kMostAgents; ++i) {
      world_.set_drift(kFirstMachine + i, static_cast<int>(world_.between(-kMostDrift, kMostDrift)));
    }
    training_.wanted = world_.between(50, 400);
    latest_.resize(1 + world_.draw(kMostAgents));
    supervise();
    trouble();
  }

  // Runs to the end. Returns what is wrong, or nothing.
  std::string run() {
    while (world_.now() < kTrouble + kPatience && world_.step()) {
      if (!world_.is_calm() && world_.now() >= kTrouble) world_.calm();
      if (!world_.violation().empty()) return world_.violation();
      if (code_ && nobody_runs()) return *code_ == 0 && training_.steps < training_.wanted ? "it ended too early" : "";
    }
    return "it does not end";
  }
  std::string history() const { return world_.history(); }

 private:
  bool nobody_runs() const {
    return training_.workers.empty() &&
           std::none_of(agents_.begin(), agents_.end(), [](const auto& each) { return each->alive(); });
  }
  void exchange(const cli::Report& report, const World::Respond& respond) {
    if (const auto wrong = cli::misfit(report)) return world_.violate("a report does not fit: ", *wrong);
    const cli::Order order = roster_.exchange(report, time_of(world_, kLeaderNode));
    for (const std::string& news : roster_.take_news()) world_.note("leader: ", news);
    if (order.kind() == cli::Order::EXIT && !report.leaving()) code_ = order.code();
    respond({.ok = true, .value = order});
  }
  // Starts launchers, and others in the place of those that have ended, until the run is over.
  void supervise() {
    constexpr int kHand = 90;
    world_.at(kHand, world_.between(200, 8000), [this] { supervise(); });
    if (code_) return;
    for (std::size_t i = 0; i < latest_.size(); ++i) {
      if (latest_[i] != nullptr && latest_[i]->alive()) continue;
      if (latest_[i] != nullptr && !world_.is_calm() && world_.chance(50)) continue;
      agents_.push_back(std::make_unique<SimAgent>(
          world_, training_, static_cast<int>(i), 1 + static_cast<int>(world_.draw(3)),
          [this](const cli::Report& report, const World::Respond& respond) { exchange(report, respond); }));
      latest_[i] = agents_.back().get();
    }
  }
  void trouble() {
    if (world_.now() >= kTrouble) return;
    world_.at(kFate, world_.between(100, pause_), [this] { trouble(); });
    strike();
  }
  void strike() {
    SimAgent* const agent = latest_[world_.draw(latest_.size())];
    const int other = latest_[world_.draw(latest_.size())]->launcher();
    switch (world_.draw(6)) {
      case 0:
        return agent->kill_a_worker();
      case 1:
        return agent->kill();
      case 2:
        return agent->tell_to_end();
      case 3:
        return world_.stop(agent->launcher(), world_.between(100, 20'000));
      case 4:
        return world_.stop(kLeaderNode, world_.between(100, world_.chance(10) ? 20'000 : 4000));
      default:
        return world_.chance(50) ? world_.cut(other, kLeaderNode, world_.between(100, 15'000))
                                 : world_.cut(kLeaderNode, other, world_.between(100, 15'000));
    }
  }

  static constexpr int kFate = 91;
  World world_;
  const int64_t pause_ = world_.between(1000, 15'000);
  Training training_;
  cli::AgentRoster roster_;
  std::vector<std::unique_ptr<SimAgent>> agents_;
  std::vector<SimAgent*> latest_;
  std::optional<int> code_;
};

TEST(Elastic, WorkersOfOneRoundRunAtATime) {
  expect_no_failure<ElasticRun>(kSeeds);
}
TEST(Elastic, ASeedHasOneHistory) {
  expect_one_history<ElasticRun>();
}

}  // namespace
}  // namespace cohort::simulation::elastic_test
