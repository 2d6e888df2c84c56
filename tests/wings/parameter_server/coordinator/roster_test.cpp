// Histories of servers that come, go and come back, in which no process is taken for another one. Nothing here has a
// clock, a socket or a thread.
#include "wings/parameter_server/coordinator/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::roster_test {
namespace {

using Kind = RosterAction::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kMostSteps = 100;

// Servers 0 and up, which are there as the processes 10, 11 and so on.
class History {
 public:
  History(int servers, int replicas) : roster({.servers = servers, .replicas = replicas, .run = 5}) {
    for (int server = 0; server < servers; ++server) roster.enter(server, static_cast<uint64_t>(10 + server));
  }

  // Lets all servers that are to get the view take it.
  void deliver() {
    for (const int server : roster.servers())
      roster.acknowledge(server, roster.process(server), roster.view().number());
    EXPECT_TRUE(roster.is_delivered());
    roster.announced();
  }
  // Carries everything out until there is nothing to do, which has to come to an end.
  void settle() {
    for (int step = 0; step < kMostSteps; ++step) {
      const RosterAction action = roster.next();
      if (action.kind == Kind::kNone) return;
      action.kind == Kind::kPublish ? deliver() : roster.carried_out(action);
    }
    ADD_FAILURE() << "there is something to do for ever: " << roster.view().ShortDebugString();
  }
  // Publishes what is to be published and returns what comes next.
  RosterAction after_views() {
    for (int step = 0; step < kMostSteps; ++step) {
      const RosterAction action = roster.next();
      if (action.kind != Kind::kPublish) return action;
      deliver();
    }
    ADD_FAILURE() << "views for ever";
    return {};
  }
  // Returns "PRIMARY:PROCESS BACKUP:PROCESS" of a home.
  std::string home(int index) const {
    const auto& home = roster.view().homes(index);
    return std::to_string(home.primary()) + ":" + std::to_string(home.primary_process()) + " " +
           std::to_string(home.backup()) + ":" + std::to_string(home.backup_process());
  }

  Roster roster;
};

TEST(Roster, FillsEveryHomeAndGivesItABackup) {
  History history(3, 2);
  EXPECT_EQ(history.roster.next().kind, Kind::kNone) << "not begun";
  EXPECT_THAT(history.roster.missing(/*one_is_enough=*/false), IsEmpty());
  history.roster.begin(4);
  history.settle();
  EXPECT_EQ(history.home(0), "0:10 1:11");
  EXPECT_EQ(history.home(1), "1:11 2:12");
  EXPECT_EQ(history.home(2), "2:12 0:10");
  EXPECT_EQ(history.roster.view().epoch(), 4U);
  EXPECT_EQ(history.roster.view().run(), 5U);
}

// Both servers come back empty. While the second one is being filled the first one is restarted once more: it must not
// be taken for the process that was filled.
TEST(Roster, AServerThatIsRestartedWhileAnotherIsFilledIsFilledAgain) {
  History history(2, 1);
  history.roster.begin(1);
  history.settle();
  for (const int server : {0, 1}) history.roster.lose(server);
  history.roster.enter(0, 20);
  history.roster.enter(1, 21);
  const RosterAction first = history.after_views();
  EXPECT_EQ(first, (RosterAction{.kind = Kind::kFill, .home = 0, .server = 0, .process = 20}));
  history.roster.carried_out(first);
  const RosterAction second = history.after_views();
  EXPECT_EQ(second, (RosterAction{.kind = Kind::kFill, .home = 1, .server = 1, .process = 21}));
  history.roster.enter(0, 30);
  history.roster.carried_out(second);
  EXPECT_FALSE(history.roster.served(0));
  const RosterAction again = history.after_views();
  EXPECT_EQ(again, (RosterAction{.kind = Kind::kFill, .home = 0, .server = 0, .process = 30}));
  history.roster.carried_out(first);  // a late report of what was done to the process that is gone
  EXPECT_FALSE(history.roster.served(0));
  history.roster.carried_out(again);
  history.settle();
  EXPECT_EQ(history.home(0), "0:30 -1:0");
  EXPECT_EQ(history.home(1), "1:21 -1:0");
  const uint64_t number = history.roster.view().number();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(history.roster.next().kind, Kind::kNone);
  EXPECT_EQ(history.roster.view().number(), number) << "a settled view stays";
}

// Updates go to a backup only once the primary knows of it. Shards that were copied before would lack the updates in
// between.
TEST(Roster, NothingIsCopiedBeforeThePrimaryKnowsWhoJoins) {
  History history(2, 2);
  history.roster.begin(1);
  history.settle();
  history.roster.lose(1);
  history.roster.enter(1, 21);
  EXPECT_EQ(history.roster.next().kind, Kind::kPublish);
  EXPECT_EQ(history.home(1), "0:10 -1:0");
  history.deliver();
  EXPECT_EQ(history.roster.next().kind, Kind::kPublish);
  EXPECT_EQ(history.roster.view().homes(0).joining_process(), 21U);
  const uint64_t number = history.roster.view().number();
  history.roster.acknowledge(1, 21, number);
  history.roster.acknowledge(0, 10, number - 1);  // a late answer to an earlier view
  EXPECT_FALSE(history.roster.is_delivered());
  EXPECT_THAT(history.roster.servers(), ElementsAre(0));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(history.roster.next().kind, Kind::kPublish);
  EXPECT_EQ(history.roster.view().number(), number) << "the same view again, not another one";
  history.roster.acknowledge(0, 10, number);
  history.roster.announced();
  const RosterAction copy = history.roster.next();
  EXPECT_EQ(copy.kind, Kind::kCopy);
  EXPECT_EQ(copy.process, 21U);
  history.roster.enter(1, 31);  // it is restarted while it gets the shards
  history.roster.carried_out(copy);
  EXPECT_EQ(history.home(0), "0:10 -1:0");
  history.settle();
  EXPECT_EQ(history.home(0), "0:10 1:31");
  EXPECT_EQ(history.home(1), "1:31 0:10");
}

// What a view says of other homes and of learning rates does not make a copy begin again.
TEST(Roster, ACopyGoesOnInLaterViews) {
  History history(3, 2);
  history.roster.begin(1);
  history.settle();
  history.roster.lose(1);
  history.roster.enter(1, 21);
  const RosterAction copy = history.after_views();
  ASSERT_EQ(copy.kind, Kind::kCopy);
  history.roster.set_learning_rate(3, 0.5);
  EXPECT_EQ(history.roster.next().kind, Kind::kPublish);
  history.deliver();
  EXPECT_EQ(history.roster.next(), copy);
  history.roster.carried_out(copy);
  history.settle();
  EXPECT_EQ(history.home(1), "1:21 2:12");
  EXPECT_EQ(history.roster.view().rates(0).learning_rate(), 0.5);
}

TEST(Roster, ABackupTakesOverAndGivesTheHomeBack) {
  History history(3, 2);
  history.roster.begin(1);
  history.settle();
  history.roster.lose(0);
  EXPECT_EQ(history.roster.next().kind, Kind::kPublish);
  EXPECT_EQ(history.home(0), "1:11 -1:0");
  EXPECT_EQ(history.home(2), "2:12 -1:0");
  history.settle();
  EXPECT_EQ(history.home(0), "1:11 2:12");
  history.roster.enter(0, 10);  // the same process was only cut off: what it has is too old
  history.settle();
  EXPECT_EQ(history.home(0), "0:10 1:11");
  EXPECT_EQ(history.home(2), "2:12 0:10");
}

// While both servers of a home are silent either of them may come back with the shards.
TEST(Roster, TheOneThatComesBackWithTheShardsServesThem) {
  for (const bool primary : {false, true}) {
    History history(2, 2);
    history.roster.begin(1);
    history.settle();
    history.roster.lose(0);
    history.roster.lose(1);
    EXPECT_EQ(history.after_views().kind, Kind::kNone);
    const int back = primary ? 0 : 1;
    history.roster.enter(back, static_cast<uint64_t>(10 + back));
    history.settle();
    EXPECT_TRUE(history.roster.served(0));
    EXPECT_EQ(history.roster.view().homes(0).primary(), back) << "nothing had to be filled";
  }
  History history(2, 2);
  history.roster.begin(1);
  history.settle();
  history.roster.lose(0);
  history.roster.lose(1);
  history.roster.enter(0, 20);
  EXPECT_EQ(history.after_views().kind, Kind::kFill) << "it has come back empty, and nobody waits for the other one";
}

TEST(Roster, AProcessWithoutTheShardsOfAViewIsFilled) {
  History history(2, 1);
  history.roster.begin(1);
  history.settle();
  history.roster.distrust(1, 99);  // a process that is long gone
  EXPECT_EQ(history.roster.next().kind, Kind::kNone);
  history.roster.distrust(1, 11);
  const RosterAction fill = history.after_views();
  EXPECT_EQ(fill, (RosterAction{.kind = Kind::kFill, .home = 1, .server = 1, .process = 11}));
  history.roster.carried_out(fill);
  history.settle();
  EXPECT_EQ(history.home(1), "1:11 -1:0");
}

// What servers have from an earlier coordinator is given up, so that nothing but the checkpoint is known to be in it.
// Another coordinator needs one server of each home, the first one all of them.
TEST(Roster, AnotherCoordinatorFillsEveryHomeOfWhichAServerIsThere) {
  Roster roster({.servers = 3, .replicas = 2, .run = 5});
  EXPECT_THAT(roster.missing(/*one_is_enough=*/true), ElementsAre(0, 1, 2));
  roster.enter(1, 11);
  EXPECT_THAT(roster.missing(true), ElementsAre(0, 2)) << "home 2 is with 2 or 0";
  roster.enter(0, 10);
  EXPECT_THAT(roster.missing(true), IsEmpty());
  EXPECT_THAT(roster.missing(false), ElementsAre(2));
  roster.begin(2);
  EXPECT_EQ(roster.next().kind, Kind::kPublish) << "what servers had is taken from them before they are filled";
  EXPECT_EQ(roster.view().epoch(), 2U);
  for (int home = 0; home < 3; ++home) EXPECT_FALSE(roster.served(home));
  for (const int server : roster.servers()) roster.acknowledge(server, roster.process(server), roster.view().number());
  roster.announced();
  for (const int server : {0, 1, 0}) {
    const RosterAction fill = roster.next();
    EXPECT_EQ(fill.kind, Kind::kFill);
    EXPECT_EQ(fill.server, server);
    roster.carried_out(fill);
    while (roster.next().kind == Kind::kPublish) {
      for (const int each : roster.servers()) roster.acknowledge(each, roster.process(each), roster.view().number());
      roster.announced();
    }
  }

  Roster alone({.servers = 3, .replicas = 1, .run = 5});
  alone.enter(1, 11);
  EXPECT_THAT(alone.missing(true), ElementsAre(0, 2)) << "without replicas nobody else has the room";
}

TEST(Roster, NewValuesGoToPrimariesBeforeThereAreBackups) {
  History history(2, 2);
  history.roster.begin(1);
  history.settle();
  history.roster.drop_backups();
  EXPECT_EQ(history.roster.next().kind, Kind::kPublish);
  EXPECT_EQ(history.home(0), "0:10 -1:0");
  const uint64_t number = history.roster.view().number();
  history.deliver();
  history.roster.renew();
  history.settle();
  EXPECT_GT(history.roster.view().number(), number);
  EXPECT_EQ(history.home(0), "0:10 1:11");
}

}  // namespace
}  // namespace cohort::roster_test
