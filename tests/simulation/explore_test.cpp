// Every state that a small parameter-server cluster can come to (model.h), however its messages and faults fall: no
// update is lost or applied twice, and from every state the run can still end. docs/reliability.md has the counts.
// States that go on alike are one (model_key.h); that they do is looked at, too.
//
// COHORT_SERVERS=N, COHORT_FAULTS=M and COHORT_REPLICAS=1 or 2 (only) explore with more than the tests do, which takes
// seconds there: make explore. With COHORT_COMPARES=1 they look at all states that are taken for one, too.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/simulation/model.h"
#include "tests/simulation/seeds.h"

namespace cohort::simulation::explore_test {
namespace {

using model::Key;

struct KeyHash {
  std::size_t operator()(const Key& key) const { return key.first; }
};

class Explorer {
 public:
  // `compares`: of states that are taken for one, each is asked what can follow.
  explicit Explorer(const ModelOptions& options, bool compares = false) : first_(options), compares_(compares) {}

  // Visits every state. Returns what is wrong and how it comes about, or nothing.
  std::string run() {
    struct Open {
      uint32_t number;
      std::vector<Model> left;
    };
    std::vector<Open> path;
    const auto enter = [&](const Model& model, uint32_t number) {
      if (model.is_done()) done_.push_back(number);
      path.push_back({.number = number, .left = model.next()});
      if (compares_) following_[number] = key_of(path.back().left);
    };
    enter(first_, number_of(first_).first);
    std::vector<std::string> steps(1);
    while (!path.empty()) {
      if (path.back().left.empty()) {
        path.pop_back();
        steps.pop_back();
        continue;
      }
      const Model model = std::move(path.back().left.back());
      path.back().left.pop_back();
      const auto [number, is_new] = number_of(model);
      edges_.emplace_back(number, path.back().number);
      if (!model.violation().empty()) return model.violation() + text_of(steps) + "\n" + model.step();
      if (!is_new && compares_ && following_[number] != key_of(model.next())) {
        return "two states with one key do not go on alike" + text_of(steps) + "\n" + model.step();
      }
      if (!is_new) continue;
      steps.push_back(model.step());
      if (steps.size() > kLongest) return "the states have no end" + text_of(steps);
      enter(model, number);
    }
    const std::size_t stuck = numbers_.size() - ending();
    return stuck == 0 ? "" : std::to_string(stuck) + " states cannot come to the end any more" + way_to_stuck();
  }

  std::size_t states() const { return numbers_.size(); }
  std::size_t steps() const { return edges_.size(); }

 private:
  static constexpr std::size_t kLongest = 1000;  // steps without coming back to a known state

  std::pair<uint32_t, bool> number_of(const Model& model) {
    const auto [place, is_new] = numbers_.emplace(model.key(), static_cast<uint32_t>(numbers_.size()));
    return {place->second, is_new};
  }
  // Returns the key of states in any order.
  static Key key_of(const std::vector<Model>& states) {
    Key all;
    for (const Model& each : states) {
      const Key key = each.key();
      all.first += model::mixed(key.first);
      all.second += model::mixed(key.second);
    }
    return all;
  }
  static std::string text_of(const std::vector<std::string>& steps) {
    std::string text;
    for (const std::string& step : steps) text += "\n" + step;
    return text;
  }
  // Marks the states from which the end can be reached, and returns their number.
  std::size_t ending() {
    std::vector<uint32_t> begins(numbers_.size() + 1);
    for (const auto& [to, from] : edges_) ++begins[to + 1];
    for (std::size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
    std::vector<uint32_t> sources(edges_.size());
    std::vector<uint32_t> next = begins;
    for (const auto& [to, from] : edges_) sources[next[to]++] = from;
    ends_.assign(numbers_.size(), false);
    std::vector<uint32_t> open;
    std::size_t count = 0;
    const auto mark = [&](uint32_t state) {
      if (ends_[state]) return;
      ends_[state] = true;
      ++count;
      open.push_back(state);
    };
    for (const uint32_t state : done_) mark(state);
    while (!open.empty()) {
      const uint32_t state = open.back();
      open.pop_back();
      for (uint32_t i = begins[state]; i < begins[state + 1]; ++i) mark(sources[i]);
    }
    return count;
  }
  // Returns a way from the first state to one that cannot come to the end: the first one that a walk meets.
  std::string way_to_stuck() {
    std::vector<bool> seen(numbers_.size());
    std::vector<std::pair<Model, std::vector<std::string>>> open{{first_, {}}};
    while (!open.empty()) {
      const auto [model, way] = std::move(open.back());
      open.pop_back();
      const uint32_t number = number_of(model).first;
      if (!ends_[number]) return text_of(way);
      if (seen[number]) continue;
      seen[number] = true;
      for (const Model& after : model.next()) {
        open.emplace_back(after, way);
        open.back().second.push_back(after.step());
      }
    }
    return "";
  }

  const Model first_;
  const bool compares_;
  std::unordered_map<uint32_t, Key> following_;  // what can follow a state, if that is compared
  std::unordered_map<Key, uint32_t, KeyHash> numbers_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // to and from
  std::vector<uint32_t> done_;
  std::vector<bool> ends_;
};

void explore(ModelOptions options) {
  const auto replicas = number_in("COHORT_REPLICAS", static_cast<uint64_t>(options.replicas));
  if (replicas != static_cast<uint64_t>(options.replicas)) GTEST_SKIP() << "COHORT_REPLICAS=" << replicas;
  options.settled = true;
  options.servers = static_cast<int>(number_in("COHORT_SERVERS", static_cast<uint64_t>(options.servers)));
  options.faults = static_cast<int>(number_in("COHORT_FAULTS", static_cast<uint64_t>(options.faults)));
  Explorer explorer(options, number_in("COHORT_COMPARES", 0) == 1);
  EXPECT_EQ(explorer.run(), "");
  std::cout << options.servers << " servers, replicas = " << options.replicas << ", " << options.faults
            << " fault(s): " << explorer.states() << " states, " << explorer.steps() << " steps" << std::endl;
  EXPECT_GT(explorer.states(), 100U);
}

// Some way comes to a fault when this part of the protocol is left out.
void expect_found(Mend without, ModelOptions options, bool settled = true) {
  options.settled = settled;
  options.without = without;
  Explorer explorer(options);
  EXPECT_NE(explorer.run(), "") << "nothing was found in " << explorer.states() << " states";
  std::cout << explorer.states() << " states, " << explorer.steps() << " steps" << std::endl;
}

TEST(Explore, EveryWayWithoutBackups) {
  explore({.servers = 3, .replicas = 1, .faults = 1});
}
TEST(Explore, EveryWayWithBackups) {
  explore({.servers = 2, .replicas = 2, .faults = 1});
}

TEST(Explore, StatesWithOneKeyGoOnAlike) {
  for (ModelOptions options : {ModelOptions{.servers = 3, .replicas = 1, .faults = 1},
                               ModelOptions{.servers = 2, .replicas = 2, .closures = 1, .faults = 1}}) {
    options.settled = true;
    EXPECT_EQ(Explorer(options, /*compares=*/true).run(), "");
  }
}

TEST(Mends, TheExplorerFindsThatEpochsAreMissing) {
  expect_found(Mend::kEpochs, {.servers = 2, .replicas = 1, .faults = 1});
}
TEST(Mends, TheExplorerFindsThatIncarnationsAreMissing) {
  expect_found(Mend::kIncarnations, {.servers = 2, .replicas = 1, .faults = 1});
}
TEST(Mends, TheExplorerFindsThatNobodyWaitsForViews) {
  expect_found(Mend::kAcknowledgedViews, {.servers = 2, .replicas = 1, .faults = 1}, /*settled=*/false);
}
TEST(Mends, TheExplorerFindsThatUpdatesAreNotPassedOnToWhoJoins) {
  expect_found(Mend::kPassOn, {.servers = 2, .replicas = 2, .faults = 1});
}
TEST(Mends, TheExplorerFindsThatUpdatesDoNotWaitForACopy) {
  expect_found(Mend::kWaitForCopy, {.servers = 2, .replicas = 2, .faults = 1});
}
TEST(Mends, TheExplorerFindsThatServersForgetInAnyView) {
  expect_found(Mend::kForgetInOneView, {.servers = 2, .replicas = 1, .faults = 2});
}
TEST(Mends, TheExplorerFindsThatAServerStaysFilledFromAnOldCheckpoint) {
  expect_found(Mend::kFillAgain, {.servers = 2, .replicas = 1, .faults = 2});
}

}  // namespace
}  // namespace cohort::simulation::explore_test
