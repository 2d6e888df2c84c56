// Every state that a small parameter-server cluster can come to (model.h), however its messages and faults fall: no
// update is lost or applied twice, and from every state the run can still end. docs/reliability.md has the counts.
//
// COHORT_SERVERS=N and COHORT_FAULTS=M explore with more than the tests do, which takes seconds there.
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

// The states are known by 128 bits of their bytes, so that 10^8 of them are confused with a probability below 10^-22.
struct Key {
  uint64_t first = 0;
  uint64_t second = 0;
  friend bool operator==(const Key& a, const Key& b) { return a.first == b.first && a.second == b.second; }
};
struct KeyHash {
  std::size_t operator()(const Key& key) const { return key.first; }
};

Key key_of(const std::string& bytes) {
  constexpr uint64_t kPrime = 0x100000001B3ULL;
  uint64_t second = 0xCBF29CE484222325ULL;
  for (const char byte : bytes) second = (second ^ static_cast<uint8_t>(byte)) * kPrime;
  return {.first = std::hash<std::string>()(bytes), .second = second ^ (second >> 29)};
}

class Explorer {
 public:
  explicit Explorer(const ModelOptions& options) : first_(options) {}

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
    const auto [place, is_new] = numbers_.emplace(key_of(model.bytes()), static_cast<uint32_t>(numbers_.size()));
    return {place->second, is_new};
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
  std::unordered_map<Key, uint32_t, KeyHash> numbers_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // to and from
  std::vector<uint32_t> done_;
  std::vector<bool> ends_;
};

void explore(ModelOptions options) {
  options.settled = true;
  options.servers = static_cast<int>(number_in("COHORT_SERVERS", static_cast<uint64_t>(options.servers)));
  options.faults = static_cast<int>(number_in("COHORT_FAULTS", static_cast<uint64_t>(options.faults)));
  Explorer explorer(options);
  EXPECT_EQ(explorer.run(), "");
  std::cout << options.servers << " servers, replicas = " << options.replicas << ", " << options.faults
            << " fault(s): " << explorer.states() << " states, " << explorer.steps() << " steps" << std::endl;
  EXPECT_GT(explorer.states(), 100U);
}

TEST(Explore, EveryWayWithoutBackups) {
  explore({.servers = 3, .replicas = 1, .faults = 1});
}
TEST(Explore, EveryWayWithBackups) {
  explore({.servers = 2, .replicas = 2, .faults = 1});
}

}  // namespace
}  // namespace cohort::simulation::explore_test
