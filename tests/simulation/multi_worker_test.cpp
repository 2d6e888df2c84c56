// Groups of three workers in one thread, from a seed: they are killed, stopped and cut off, come back, and are started
// twice. Who is in a group is decided by the library's CoordinationState, and when its leader is lost by its BeatPlan.
// All members of a group are told of the same members, nobody passes a barrier alone, a second process ends no group,
// and everything has to end. docs/reliability.md says what is simulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/member.h"
#include "tests/simulation/seeds.h"
#include "tests/simulation/world.h"

namespace cohort::simulation::multi_worker_test {
namespace {

constexpr int64_t kTrouble = 60'000;    // ms; then nothing goes wrong any more
constexpr int64_t kPatience = 300'000;  // ms after that, in which everything has to end
constexpr uint64_t kSeeds = 1000;
// The longest outage that no group may notice. The promise is four fifths of the time-out, on a network that loses
// nothing before and after it.
constexpr int64_t kShortOutage = kHeartbeat.count() * 3 / 5;
// The time that it takes until nothing of a trouble is left: silence is noticed, and processes end.
constexpr int64_t kNoticed = 4 * kHeartbeat.count();

class Cluster {
 public:
  Cluster(uint64_t seed, World::History history)
      : world_(seed, history), shared_{.cluster = ClusterSpec({{"worker", {"a:1", "b:1", "c:1"}}})} {
    shared_.wanted_steps = static_cast<int>(world_.between(20, 200));
    shared_.on_failure = [this](const SimLeader& leader) { require_cause(leader); };
    latest_.resize(kMembers);
    supervise();
    trouble();
  }

  // Runs to the end. Returns what is wrong, or nothing.
  std::string run() {
    while (world_.now() < kTrouble + kPatience && world_.step()) {
      if (!world_.is_calm() && world_.now() >= kTrouble) calm();
      if (!world_.violation().empty()) return world_.violation();
      const auto up = [](const auto& member) { return member->up(); };
      if (shared_.over && std::none_of(members_.begin(), members_.end(), up)) return "";
    }
    return "it does not end";
  }
  std::string history() const { return world_.history(); }

 private:
  void calm() {
    world_.calm();
    struck_until_ = std::min(struck_until_, world_.now() + kNoticed);
  }
  // A group that nothing has happened to since it was formed must not fail.
  void require_cause(const SimLeader& leader) {
    const std::string why = leader.state().failure().value_or("");
    world_.note("the group of process ", leader.process(), " fails: ", why);
    if (leader.formed_at() && *leader.formed_at() > struck_until_) {
      world_.violate("a group failed to which nothing had happened: ", why);
    }
  }
  SimMember* start(int index, int node) {
    members_.push_back(std::make_unique<SimMember>(world_, shared_, index, node));
    return members_.back().get();
  }
  // Starts what has ended again, as a launcher does, until the chief is done.
  void supervise() {
    constexpr int kLauncher = 50;
    world_.at(kLauncher, world_.between(200, 3000), [this] { supervise(); });
    for (int index = 0; index < kMembers; ++index) {
      SimMember*& member = latest_[static_cast<std::size_t>(index)];
      const bool up = member != nullptr && member->up();
      if (!shared_.over && !up) member = start(index, index);
    }
    if (!shared_.over) return;
    // The launcher ends what is left a while after the chief.
    world_.at(kLauncher, 5000, [this] {
      for (const auto& member : members_) member->kill();
    });
  }
  void trouble() {
    if (world_.now() >= kTrouble) return;
    world_.at(kFate, world_.between(500, pause_), [this] { trouble(); });
    strike();
  }
  // Notes that something happens to the members for a time, and for as long as it takes to be noticed.
  void note_strike(int64_t time) { struck_until_ = std::max(struck_until_, world_.now() + time + kNoticed); }
  void strike() {
    SimMember& member = *members_[world_.draw(members_.size())];
    const int64_t time = world_.between(100, 12'000);
    switch (world_.draw(6)) {
      case 0:
        note_strike(0);
        return member.kill();
      case 1:
        note_strike(time);
        return world_.stop(member.node(), time);
      case 2:
        note_strike(time);
        return world_.cut(member.node(), 0, time);
      case 3:
        note_strike(time);
        return world_.cut(0, member.node(), time);
      case 4: {  // A second process of a worker, on another machine.
        constexpr int kElsewhere = 20;
        if (!shared_.over) start(1 + static_cast<int>(world_.draw(kMembers - 1)), kElsewhere);
        return;
      }
      default:  // A short outage, to be survived, unless another one comes soon.
        if (world_.now() < outage_until_ + 2 * kHeartbeat.count()) return;
        outage_until_ = world_.now() + kShortOutage;
        return world_.cut(member.node(), 0, kShortOutage);
    }
  }

  static constexpr int kFate = 60;
  World world_;
  const int64_t pause_ = world_.between(2000, 15'000);  // the longest one between two troubles
  Shared shared_;
  std::vector<std::unique_ptr<SimMember>> members_;
  std::vector<SimMember*> latest_;  // of each worker, that of its launcher
  int64_t struck_until_ = 0;
  int64_t outage_until_ = -1'000'000;
};

TEST(MultiWorker, AGroupIsTheSameForAllItsMembers) {
  expect_no_failure<Cluster>(kSeeds);
}
TEST(MultiWorker, ASeedHasOneHistory) {
  expect_one_history<Cluster>();
}

}  // namespace
}  // namespace cohort::simulation::multi_worker_test
