// Conversations with the coordination leader: tasks, in several processes each, strangers among them, register, give
// signs of life, meet at barriers, leave, fail, and put and get values, in any order and at any time. Every call is
// answered once, at the latest when the leader ends; the complete group is the same for all; nobody passes a barrier
// before every member that is there has come; a value that was put if absent stays.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fail.h"
#include "cluster/coordination/state.h"
#include "tests/fuzz/entry.h"
#include "tests/fuzz/numbers.h"

namespace cohort::fuzz::coordination_fuzzer {
namespace {

using std::chrono::milliseconds;

class Conversation {
 public:
  explicit Conversation(fuzz::Numbers numbers)
      : numbers_(numbers), state_(ClusterSpec({{"chief", {"a:1"}}, {"worker", {"b:1", "c:1"}}}), milliseconds(5000)) {}

  void run() {
    while (!numbers_.empty()) step();
    state_.shut_down();
    for (const auto& times : answers_) fuzz::require(*times == 1, "a call was not answered once");
  }

 private:
  TaskProcess any_process() {
    static const std::vector<TaskId> tasks = {{"chief", 0}, {"worker", 0}, {"worker", 1}, {"worker", 7}, {"ps", 0}};
    const TaskId& task = tasks[static_cast<std::size_t>(numbers_.below(static_cast<int>(tasks.size())))];
    return {.task = task, .incarnation = static_cast<uint64_t>(numbers_.below(3))};
  }
  // Returns a reply that counts how often it is called, and looks at the answer.
  template <typename Look>
  CoordinationState::Reply reply(const Look& look) {
    answers_.push_back(std::make_shared<int>(0));
    return [times = answers_.back(), look](const CoordinationAnswer& answer) {
      ++*times;
      look(answer);
    };
  }
  // The server cuts what a caller asks for.
  CoordinationState::Time until() { return now_ + milliseconds(std::clamp<int64_t>(numbers_.any(), 0, 60'000)); }

  void step() {
    using Kind = CoordinationAnswer::Kind;
    const TaskProcess who = any_process();
    const std::string name = std::to_string(numbers_.below(3));
    switch (numbers_.below(9)) {
      case 0:
        return state_.register_task(who, numbers_.below(8) == 0 ? "{}" : cluster_, "a process", info_of(who), now_,
                                    until(), reply([this](const CoordinationAnswer& answer) {
                                      if (answer.kind != Kind::kDone) return;
                                      if (infos_.empty()) infos_ = answer.infos;
                                      fuzz::require(answer.infos.size() == 3 && answer.infos == infos_,
                                                    "members are told of different groups");
                                    }));
      case 1:
        return state_.beat(who, static_cast<std::size_t>(numbers_.any()), now_, until(),
                           reply([](const CoordinationAnswer& answer) {
                             fuzz::require(answer.left.size() <= 3, "more have left than there are");
                           }));
      case 2:
        return state_.barrier(who, name, now_, until(), reply([](const CoordinationAnswer& answer) {
                                fuzz::require(answer.kind != Kind::kPending || !answer.missing.empty(),
                                              "nobody is missing");
                              }));
      case 3:
        return state_.fail(who, "it has failed");
      case 4:
        return state_.leave(who);
      case 5: {
        const bool if_absent = numbers_.below(2) == 0;
        const std::string value = std::to_string(numbers_.any()) + std::string(numbers_.count(16), 'x');
        return state_.put(who, name, value, if_absent,
                          reply([this, name, value, if_absent](const CoordinationAnswer& answer) {
                            if (answer.kind != Kind::kDone) return;
                            if (!if_absent || !values_.contains(name)) values_[name] = value;
                            fuzz::require(answer.value == values_.at(name), "another value is kept");
                          }));
      }
      case 6:
        return state_.get(who, name, until(), reply([](const CoordinationAnswer& answer) {
                            if (answer.kind == Kind::kDone) fuzz::require(!answer.value.empty(), "no value");
                          }));
      default:
        now_ += milliseconds(numbers_.below(100) * numbers_.below(100));
        state_.tick(now_);
    }
  }
  static std::string info_of(const TaskProcess& who) { return c10::str(who.task.to_string(), " ", who.incarnation); }

  fuzz::Numbers numbers_;
  CoordinationState state_;
  const std::string cluster_ = ClusterSpec({{"chief", {"a:1"}}, {"worker", {"b:1", "c:1"}}}).to_json();
  CoordinationState::Time now_{};
  std::vector<std::shared_ptr<int>> answers_;
  std::vector<std::string> infos_;
  std::map<std::string, std::string> values_;
};

}  // namespace

COHORT_FUZZER_ENTRY(coordination)(const uint8_t* data, std::size_t size) {
  Conversation(Numbers(data, size)).run();
  return 0;
}

}  // namespace cohort::fuzz::coordination_fuzzer
