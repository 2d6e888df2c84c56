// The membership's rules, with a clock that the test moves.
#include "cluster/coordination/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::coordination_state_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = CoordinationAnswer::Kind;
using Answers = std::vector<CoordinationAnswer>;
using std::chrono::seconds;

const ClusterSpec kCluster(std::map<std::string, std::vector<std::string>>{
    {"chief", {"c:1"}}, {"worker", {"a:1", "b:1"}}, {"evaluator", {"e:1"}}});
const TaskProcess kChief{{"chief", 0}, 1};
const TaskProcess kFirst{{"worker", 0}, 2};
const TaskProcess kSecond{{"worker", 1}, 3};

class CoordinationStateTest : public ::testing::Test {
 protected:
  CoordinationState::Reply into(Answers& answers) {
    return [&answers](const CoordinationAnswer& answer) { answers.push_back(answer); };
  }
  void enter(const TaskProcess& who, const std::string& cluster = kCluster.to_json(), Answers* answers = nullptr) {
    state_.register_task(who, cluster, "pid " + std::to_string(who.incarnation), "info of " + who.task.to_string(),
                         now_, now_ + seconds(1), into(answers != nullptr ? *answers : registered_));
  }
  void enter_all() {
    registered_.clear();
    for (const TaskProcess& who : {kChief, kFirst, kSecond}) enter(who);
    ASSERT_EQ(registered_.back().kind, Kind::kDone);
  }
  void pass(seconds time) {
    now_ += time;
    state_.tick(now_);
  }

  CoordinationState::Time now_{};
  CoordinationState state_{kCluster, seconds(5)};
  Answers registered_;
};

TEST_F(CoordinationStateTest, RegistrationEndsWhenAllAreThere) {
  enter(kSecond);
  enter(kChief);
  EXPECT_TRUE(registered_.empty());
  enter(kFirst);
  ASSERT_EQ(registered_.size(), 3U);
  for (const CoordinationAnswer& answer : registered_) {
    EXPECT_EQ(answer.kind, Kind::kDone);
    EXPECT_THAT(answer.infos, ElementsAre("info of chief 0", "info of worker 0", "info of worker 1"))
        << "the evaluator is no member";
  }
}

TEST_F(CoordinationStateTest, RegistrationSaysWhoIsMissing) {
  enter(kFirst);
  pass(seconds(2));
  ASSERT_EQ(registered_.size(), 1U);
  EXPECT_EQ(registered_[0].kind, Kind::kPending);
  EXPECT_THAT(registered_[0].missing, ElementsAre("chief 0", "worker 1"));
  enter(kFirst);  // asks again
  EXPECT_EQ(registered_.size(), 1U);
}

TEST_F(CoordinationStateTest, WhoDoesNotBelongIsRefused) {
  enter({{"worker", 7}, 9});
  enter(kFirst, "{}");
  ASSERT_EQ(registered_.size(), 2U);
  for (const CoordinationAnswer& answer : registered_) EXPECT_EQ(answer.kind, Kind::kRefused);
  EXPECT_THAT(registered_[0].reason, HasSubstr("there is no worker 7"));
  EXPECT_THAT(registered_[1].reason, HasSubstr("worker 0 (pid 2) was started with another cluster: it has {}"));
  EXPECT_EQ(state_.failure(), std::nullopt) << "the group goes on without them";
}

// It is refused before the group is complete and afterwards.
TEST_F(CoordinationStateTest, ASecondProcessIsRefusedWhileTheFirstIsAlive) {
  for (const bool complete : {false, true}) {
    SCOPED_TRACE(complete);
    enter(kSecond);
    if (complete) enter_all();
    const TaskProcess again{{"worker", 1}, complete ? 99U : 98U};
    Answers second;
    enter(again, kCluster.to_json(), &second);
    enter(kSecond);  // may have been under way when the second process came
    pass(seconds(1));
    ASSERT_EQ(second.size(), 1U);
    EXPECT_EQ(second[0].kind, Kind::kPending) << "nobody knows yet";
    EXPECT_THAT(second[0].missing, ElementsAre("the place of worker 1, which pid 3 has"));
    pass(seconds(1));
    enter(again, kCluster.to_json(), &second);
    enter(kSecond);
    ASSERT_EQ(second.size(), 2U);
    EXPECT_EQ(second[1].kind, Kind::kRefused);
    EXPECT_EQ(
        second[1].reason,
        c10::str("the place of worker 1 is taken by pid 3, which is alive; this process is pid ", again.incarnation));
    EXPECT_EQ(state_.failure(), std::nullopt) << "the group goes on without it";
    registered_.clear();
  }
}

TEST_F(CoordinationStateTest, ASecondProcessComesToTheNextGroupWhenTheFirstIsLost) {
  enter_all();
  for (int i = 0; i < 3; ++i) {
    enter({{"worker", 1}, 99});
    Answers beats;
    for (const TaskProcess& who : {kChief, kFirst}) state_.beat(who, 0, now_, now_ + seconds(1), into(beats));
    EXPECT_EQ(state_.failure(), std::nullopt);
    pass(seconds(2));
  }
  EXPECT_THAT(state_.failure().value_or(""), HasSubstr("worker 1 (pid 3) is lost"));
  EXPECT_EQ(registered_.back().kind, Kind::kOver);
  enter({{"worker", 1}, 99});
  EXPECT_EQ(registered_.back().kind, Kind::kOver);
}

// Whoever reaches the leader's port, and does not know what the members have drawn.
TEST_F(CoordinationStateTest, AStrangerChangesNothing) {
  Answers answers;
  for (const uint64_t incarnation : {0, 99}) {
    for (const bool entered : {false, true}) {
      if (entered && incarnation == 0) continue;
      if (entered) enter_all();
      const TaskProcess stranger{{"worker", 1}, incarnation};
      state_.fail(stranger, "because I say so");
      state_.leave(stranger);
      state_.barrier(stranger, "b", now_, now_ + seconds(1), into(answers));
      state_.beat(stranger, 0, now_, now_ + seconds(1), into(answers));
      state_.put(stranger, "k", "1", /*if_absent=*/false, into(answers));
      state_.get(stranger, "k", now_, into(answers));
    }
  }
  ASSERT_EQ(answers.size(), 12U);
  for (const CoordinationAnswer& answer : answers) EXPECT_EQ(answer.kind, Kind::kRefused);
  EXPECT_EQ(state_.failure(), std::nullopt);
  answers.clear();
  state_.beat(kChief, 0, now_, now_ + seconds(1), into(answers));
  state_.get(kChief, "k", now_, into(answers));
  pass(seconds(1));
  ASSERT_EQ(answers.size(), 2U);
  for (const CoordinationAnswer& answer : answers) {
    EXPECT_TRUE(answer.left.empty()) << "nobody has left";
    EXPECT_TRUE(answer.value.empty()) << "there is no such key";
  }
}

TEST_F(CoordinationStateTest, ASilentTaskIsLostAndAllHearItsName) {
  enter_all();
  Answers chief;
  Answers first;
  for (int i = 0; i < 3; ++i) {
    state_.beat(kChief, 0, now_, now_ + seconds(1), into(chief));
    state_.beat(kFirst, 0, now_, now_ + seconds(1), into(first));
    pass(seconds(2));
  }
  ASSERT_FALSE(chief.empty());
  EXPECT_EQ(chief.front().kind, Kind::kDone);
  EXPECT_EQ(chief.back().kind, Kind::kFailed);
  EXPECT_EQ(first.back().reason, "worker 1 (pid 3) is lost: nothing was heard of it for 5 s");
  Answers later;
  state_.barrier(kChief, "b", now_, now_ + seconds(1), into(later));
  state_.beat(kSecond, 0, now_, now_ + seconds(1), into(later));  // it was only stopped, and hears that it is out
  ASSERT_EQ(later.size(), 2U);
  for (const CoordinationAnswer& answer : later) EXPECT_EQ(answer.reason, first.back().reason);
}

TEST_F(CoordinationStateTest, ATaskThatDiesBeforeAllAreThereFailsTheGroup) {
  enter(kFirst);
  pass(seconds(6));
  EXPECT_THAT(state_.failure().value_or(""), HasSubstr("worker 0 (pid 2) is lost"));
  enter(kChief);
  EXPECT_EQ(registered_.back().kind, Kind::kFailed);
}

TEST_F(CoordinationStateTest, ABarrierWaitsForAllButThoseThatLeft) {
  enter_all();
  Answers answers;
  state_.barrier(kChief, "b", now_, now_ + seconds(1), into(answers));
  state_.barrier(kFirst, "b", now_, now_ + seconds(9), into(answers));
  pass(seconds(2));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].kind, Kind::kPending);
  EXPECT_THAT(answers[0].missing, ElementsAre("worker 1"));
  state_.leave(kSecond);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[1].kind, Kind::kDone);
}

TEST_F(CoordinationStateTest, DeparturesReachTheOthersAndAreNoLoss) {
  enter_all();
  Answers answers;
  state_.beat(kChief, 0, now_, now_ + seconds(9), into(answers));
  state_.leave(kSecond);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_THAT(answers[0].left, ElementsAre("worker 1"));
  state_.beat(kChief, 1, now_, now_ + seconds(4), into(answers));
  state_.beat(kFirst, 1, now_, now_ + seconds(4), into(answers));
  EXPECT_EQ(answers.size(), 1U) << "known already";
  pass(seconds(4));
  EXPECT_EQ(state_.failure(), std::nullopt);
  EXPECT_FALSE(state_.deserted());
  state_.leave(kFirst);
  state_.leave(kChief);
  EXPECT_TRUE(state_.deserted());
}

TEST_F(CoordinationStateTest, TheFirstReasonStands) {
  enter_all();
  Answers answers;
  state_.beat(kChief, 0, now_, now_ + seconds(1), into(answers));
  state_.fail({{"worker", 0}, 77}, "from a process that is not the member");
  EXPECT_TRUE(answers.empty());
  state_.fail(kFirst, "worker 0: out of memory");
  state_.fail(kSecond, "worker 1: connection reset");
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].reason, "worker 0: out of memory");
}

TEST_F(CoordinationStateTest, ValuesAreSeenByAll) {
  enter_all();
  Answers answers;
  state_.get(kFirst, "k", now_ + seconds(9), into(answers));
  EXPECT_TRUE(answers.empty());
  state_.put(kSecond, "k", "1", /*if_absent=*/true, into(answers));
  state_.put(kSecond, "k", "2", /*if_absent=*/true, into(answers));
  state_.put(kSecond, "k", "3", /*if_absent=*/false, into(answers));
  state_.get(kFirst, "k", now_, into(answers));
  ASSERT_EQ(answers.size(), 5U);
  std::vector<std::string> values;
  for (const CoordinationAnswer& answer : answers) values.push_back(answer.value);
  EXPECT_THAT(values, ElementsAre("1", "1", "1", "3", "3"));
  state_.get(kFirst, "other", now_ + seconds(1), into(answers));
  pass(seconds(1));
  EXPECT_EQ(answers.back().kind, Kind::kPending);
}

TEST_F(CoordinationStateTest, ValuesThatWouldTakeTooMuchMemoryAreRefused) {
  enter_all();
  Answers answers;
  const std::string large(std::size_t{100} << 20, 'x');
  for (const char* key : {"a", "b", "c"}) state_.put(kFirst, key, large, /*if_absent=*/false, into(answers));
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[1].kind, Kind::kDone);
  EXPECT_EQ(answers[2].kind, Kind::kRefused);
  EXPECT_THAT(answers[2].reason,
              HasSubstr("there are 2 values, and with c of 104857600 bytes they would be more than"));
  for (int i = 0; i < 5; ++i) state_.put(kFirst, "a", large, /*if_absent=*/false, into(answers));
  EXPECT_EQ(answers.back().kind, Kind::kDone) << "in place of what is there";
  state_.put(kFirst, "a", "", /*if_absent=*/false, into(answers));
  state_.put(kSecond, "c", large, /*if_absent=*/false, into(answers));
  EXPECT_EQ(answers.back().kind, Kind::kDone) << "there is room again";
}

TEST_F(CoordinationStateTest, ShuttingDownEndsEveryWait) {
  enter(kFirst);
  Answers answers;
  state_.get(kFirst, "k", now_ + seconds(9), into(answers));
  state_.shut_down();
  ASSERT_EQ(answers.size(), 1U);
  ASSERT_EQ(registered_.size(), 1U);
  EXPECT_EQ(registered_[0].kind, Kind::kFailed);
  state_.get(kFirst, "k", now_ + seconds(9), into(answers));
  EXPECT_EQ(answers.size(), 2U) << "and those that come later";
}

}  // namespace
}  // namespace cohort::coordination_state_test
