// Whole parameter-server clusters in one thread, from a seed: a chief, three servers and one to three workers, which
// are killed, stopped and cut off, above all while others are being brought back. In the end every update has to be
// applied once on every shard, and everything has to end. docs/reliability.md says what is simulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/chief.h"
#include "tests/simulation/seeds.h"
#include "tests/simulation/server.h"
#include "tests/simulation/worker.h"
#include "tests/simulation/world.h"

namespace cohort::simulation::parameter_servers_test {
namespace {

constexpr int kMostWorkers = 3;
constexpr int64_t kTrouble = 12'000;   // ms; then nothing goes wrong any more
constexpr int64_t kPatience = 60'000;  // ms after that, in which everything has to end
constexpr uint64_t kSeeds = 3000;

class Cluster {
 public:
  Cluster(uint64_t seed, World::History history)
      : world_(seed, history),
        replicas_(1 + static_cast<int>(seed % 2)),
        consistency_(seed % 3 == 0 ? Consistency{.kind = Consistency::Kind::kBoundedStaleness, .staleness = 2}
                                   : Consistency{}) {
    disk_.checkpoints[0] = std::vector<Counts>(kHomes, no_counts());
    for (int server = 0; server < kHomes; ++server) {
      servers_.push_back(std::make_unique<SimServer>(world_, servers_, server));
    }
    start_chief();
    for (int worker = 0, count = 1 + static_cast<int>(world_.draw(kMostWorkers)); worker < count; ++worker) {
      workers_.push_back(
          std::make_unique<SimWorker>(world_, servers_, worker, [this] { return chiefs_.back().get(); }));
    }
    supervise();
    trouble();
  }

  // Runs to the end. Returns what is wrong, or nothing.
  std::string run() {
    while (world_.now() < kTrouble + kPatience && world_.step()) {
      if (!world_.is_calm() && world_.now() >= kTrouble) world_.calm();
      if (!world_.violation().empty()) return world_.violation();
      if (world_.is_calm() && is_alone() && chiefs_.back()->is_done() && is_whole()) {
        return difference_of_backups();
      }
    }
    return "it does not end";
  }
  std::string history() const { return world_.history(); }

 private:
  // Returns whether the last chief is there and no other one, which might take over when it goes on.
  bool is_alone() const {
    const auto alive = [](const auto& chief) { return chief->alive(); };
    return chiefs_.back()->alive() && std::count_if(chiefs_.begin(), chiefs_.end(), alive) == 1;
  }
  // Returns whether the processes that the chief's view names are really there.
  bool is_whole() const {
    const Roster& roster = chiefs_.back()->roster();
    for (int home = 0; home < kHomes; ++home) {
      const proto::View::Home& place = roster.view().homes(home);
      const auto is_there = [&](int server, uint64_t process) {
        return server >= 0 && servers_[static_cast<std::size_t>(server)]->is(process);
      };
      if (!is_there(place.primary(), place.primary_process())) return false;
      if (replicas_ == 2 && !is_there(place.backup(), place.backup_process())) return false;
    }
    return true;
  }
  std::string difference_of_backups() {
    for (int home = 0; home < kHomes && replicas_ == 2; ++home) {
      const proto::View::Home& place = chiefs_.back()->roster().view().homes(home);
      const Counts first = servers_[static_cast<std::size_t>(place.primary())]->counts(home);
      const Counts second = servers_[static_cast<std::size_t>(place.backup())]->counts(home);
      if (!first.defined() || !second.defined() || !torch::equal(first, second)) {
        return c10::str("home ", home, " has, on its primary and its backup,\n", first, "\n", second);
      }
    }
    return "";
  }

  void start_chief() {
    const int node = chiefs_.empty() ? 0 : 1 - chiefs_.back()->node();
    for (const auto& chief : chiefs_) {
      if (chief->node() == node && chief->alive()) chief->kill();
    }
    chiefs_.push_back(std::make_unique<SimChief>(
        world_, servers_, disk_, ChiefOptions{.node = node, .replicas = replicas_, .consistency = consistency_},
        [this] { aim(); }));
  }
  // Starts what is dead again, as a launcher does.
  void supervise() {
    constexpr int kLauncher = 50;
    world_.at(kLauncher, world_.between(50, 1500), [this] { supervise(); });
    if (!chiefs_.back()->alive()) start_chief();
    for (const auto& server : servers_) {
      if (!server->up() && (world_.is_calm() || world_.chance(50))) server->start();
    }
    for (const auto& worker : workers_) {
      if (!worker->up()) worker->start();
    }
  }
  int any_node() {
    switch (world_.draw(3)) {
      case 0:
        return chiefs_.back()->node();
      case 1:
        return kFirstServer + static_cast<int>(world_.draw(kHomes));
      default:
        return kFirstWorker + static_cast<int>(world_.draw(workers_.size()));
    }
  }
  // Lets something go wrong now and then.
  void trouble() {
    if (world_.now() >= kTrouble) return;
    world_.at(kFate, world_.between(20, pause_), [this] { trouble(); });
    strike();
  }
  // Lets something go wrong while something else is being mended.
  void aim() {
    constexpr int kSecondFaultPercent = 15;
    if (world_.is_calm() || !world_.chance(kSecondFaultPercent)) return;
    world_.at(kFate, world_.between(0, 60), [this] {
      if (!world_.is_calm()) strike();
    });
  }
  void strike() {
    SimServer& server = *servers_[world_.draw(kHomes)];
    switch (world_.draw(6)) {
      case 0:
      case 1:
        if (!server.up()) return;
        server.kill();
        if (world_.chance(50)) server.start();
        return;
      case 2:
        return workers_[world_.draw(workers_.size())]->kill();
      case 3:
        if (!chiefs_.back()->alive()) return;
        if (world_.chance(50)) return chiefs_.back()->kill();
        world_.stop(chiefs_.back()->node(), world_.between(100, 3000));  // and it goes on beside the next one
        return start_chief();
      case 4:
        return world_.stop(any_node(), world_.between(50, 1500));
      default:
        return world_.cut(any_node(), any_node(), world_.between(100, 2000));
    }
  }

  static constexpr int kFate = 60;
  World world_;
  const int64_t pause_ = world_.between(500, 6000);  // the longest one between two troubles
  const int replicas_;
  const Consistency consistency_;
  Disk disk_;
  SimServer::Fleet servers_;
  std::vector<std::unique_ptr<SimChief>> chiefs_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
};

TEST(Simulation, EveryUpdateIsAppliedOnceOnEveryShard) {
  expect_no_failure<Cluster>(kSeeds);
}
TEST(Simulation, ASeedHasOneHistory) {
  expect_one_history<Cluster>();
}

}  // namespace
}  // namespace cohort::simulation::parameter_servers_test
