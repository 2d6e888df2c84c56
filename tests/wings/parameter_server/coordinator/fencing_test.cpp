// Second faults, aimed at the moment in which a first one is being mended: keepers and servers with real calls, and
// a test that stands between them. Nothing of what was answered may be lost or doubled. (roster_test.cpp has the
// histories without calls.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <thread>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/wings/parameter_server/servers.h"
#include "wings/parameter_server/coordinator/closure_queue.h"
#include "wings/parameter_server/coordinator/keeper.h"

namespace cohort::fencing_test {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the servers of servers.h

constexpr int64_t kWork = 10;  // closures

// A counter of a few shards on each server, whose values come from the coordinator.
std::shared_ptr<Catalog> counter_on(int servers, int shards_each = 1) {
  auto catalog = std::make_shared<Catalog>(servers);
  for (int i = 0; i < servers * shards_each; ++i) {
    catalog->declare({.name = "count " + std::to_string(i), .shape = {2}, .dtype = torch::kLong});
  }
  return catalog;
}

std::shared_ptr<SavedVariables> all_of(const Catalog& catalog, int64_t value) {
  auto saved = std::make_shared<SavedVariables>();
  for (const ServerVariable& variable : catalog.variables()) {
    (*saved)[variable.name] = {.value = torch::full({2}, value, torch::kLong)};
  }
  return saved;
}

KeeperOptions quick(int replicas) {
  return {.run = 7,
          .replicas = replicas,
          .start_timeout = seconds(30),
          .return_timeout = seconds(30),
          .heartbeat_timeout = seconds(2),  // servers that are killed refuse connections, which is known at once
          .call_timeout = seconds(10)};
}

// Waits for something that has to happen.
template <typename Condition>
bool soon(const Condition& condition) {
  const Deadline deadline(seconds(30));
  while (!condition() && !deadline.passed()) std::this_thread::sleep_for(milliseconds(5));
  return condition();
}

// A coordinator without workers: the test does the work.
struct Chief {
  Chief(std::shared_ptr<Catalog> its_catalog, const Fleet& fleet, const KeeperOptions& options)
      : catalog(std::move(its_catalog)),
        client(fleet.client()),
        keeper(catalog, *client, options,
               {.restored =
                    [this](int64_t from) {
                      const std::lock_guard lock(mutex);
                      restored_from.push_back(from);
                      return on_restored(from);
                    },
                .lost =
                    [this](const std::exception_ptr& error) {
                      const std::lock_guard lock(mutex);
                      lost = error;
                    }}) {}

  // Does a closure, which adds one to every element of every counter.
  void work(int64_t closure) { work(*client, closure); }
  void work(ServerClient& by, int64_t closure) const {
    std::vector<Push> pushes;
    for (uint32_t shard = 0; shard < catalog->shards().size(); ++shard) {
      pushes.push_back({.shard = shard,
                        .kind = proto::PushRequest::ADD,
                        .id = {.closure = closure},
                        .value = torch::ones({2}, torch::kLong)});
    }
    by.push(pushes);
  }
  // Returns what all elements are; -1: they differ.
  int64_t count() {
    int64_t all = -2;
    for (const auto& [name, variable] : collect(*client, *catalog, seconds(20))) {
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t value = variable.value[i].item<int64_t>();
        all = all == -2 || all == value ? value : -1;
      }
    }
    return all;
  }
  std::vector<int64_t> fills() {
    const std::lock_guard lock(mutex);
    return restored_from;
  }
  std::exception_ptr loss() {
    const std::lock_guard lock(mutex);
    return lost;
  }

  const std::shared_ptr<Catalog> catalog;
  std::mutex mutex;
  std::vector<int64_t> restored_from;
  std::exception_ptr lost;
  std::function<bool(int64_t)> on_restored = [](int64_t) { return true; };
  std::unique_ptr<ServerClient> client;
  ServerKeeper keeper;
};

void restart(Fleet& fleet, int server) {
  fleet.kill(server);
  fleet.start(server);
}

// The values for a checkpoint are read, and before it is on disk both servers are lost and filled with older ones. The
// work since then is being repeated when the checkpoint is there: the servers must not take it for done.
TEST(Fencing, ACheckpointThatIsOlderThanTheServersEndsNoMemoryOfWork) {
  const auto catalog = counter_on(2);
  Fleet fleet(catalog);
  Chief chief(catalog, fleet, quick(1));
  chief.keeper.set_source(all_of(*catalog, 0), 0);
  chief.keeper.start();
  for (int64_t closure = 0; closure < kWork; ++closure) chief.work(closure);
  const proto::View then = chief.client->view();
  ASSERT_EQ(chief.count(), kWork);
  for (const int server : {0, 1}) restart(fleet, server);
  ASSERT_TRUE(soon([&] { return chief.fills().size() == 2 && chief.client->view().number() > then.number(); }));
  EXPECT_THAT(chief.fills(), ::testing::Each(0));
  chief.keeper.set_source(all_of(*catalog, kWork), kWork);
  chief.keeper.forget(then, kWork);
  for (int64_t closure = 0; closure < kWork; ++closure) chief.work(closure);
  EXPECT_EQ(chief.count(), kWork);
  restart(fleet, 1);  // from now on it is filled from the checkpoint
  ASSERT_TRUE(soon([&] { return chief.fills().size() == 3; }));
  EXPECT_EQ(chief.fills().back(), kWork);
  for (int64_t closure = 0; closure < kWork; ++closure) chief.work(closure);
  EXPECT_EQ(chief.count(), kWork);
}

// The checkpoint is there just when a server has been filled from the one before: the work in between is not kept any
// more, so that the server has to be filled once more.
TEST(Fencing, AServerThatWasFilledFromAnOlderCheckpointIsFilledAgain) {
  const auto catalog = counter_on(1);
  Fleet fleet(catalog);
  ClosureQueue queue({});
  Chief chief(catalog, fleet, quick(1));
  chief.keeper.set_source(all_of(*catalog, 0), 0);
  chief.keeper.start();
  queue.add_worker(0);
  for (int64_t i = 0; i < kWork; ++i) {
    (void)queue.schedule("step", {{}});
    const int64_t closure = queue.take(0)->id;
    chief.work(closure);
    queue.finish(0, closure, {});
  }
  std::atomic<bool> saved = false;
  chief.on_restored = [&](int64_t from) {
    if (!saved.exchange(true)) {
      chief.keeper.set_source(all_of(*catalog, kWork), kWork);
      queue.forget_before(kWork);
    }
    return queue.replay(from);
  };
  restart(fleet, 0);
  ASSERT_TRUE(soon([&] { return chief.fills().size() == 2; }));
  EXPECT_THAT(chief.fills(), ::testing::ElementsAre(0, kWork));
  ASSERT_TRUE(soon([&] { return chief.client->view().number() > 2; }));
  while (const auto again = queue.take(0)) {
    chief.work(again->id);
    queue.finish(0, again->id, {});
  }
  chief.work(kWork);
  EXPECT_EQ(chief.count(), kWork + 1);
  EXPECT_FALSE(chief.loss());
}

// A server was filled from before a checkpoint that was being written, and the coordinator ends before the work in
// between is repeated. The next coordinator begins with that checkpoint, and nobody repeats that work any more.
TEST(Fencing, TheNextCoordinatorFillsAServerThatWasFilledFromAnOlderCheckpoint) {
  const auto catalog = counter_on(2);
  Fleet fleet(catalog);
  const TemporaryFolder folder;
  KeeperOptions options = quick(1);
  options.directory = folder.path();
  {
    Chief chief(catalog, fleet, options);
    chief.keeper.set_source(all_of(*catalog, 0), 0);
    chief.keeper.start();
    for (int64_t closure = 0; closure < kWork; ++closure) chief.work(closure);
    ASSERT_EQ(chief.count(), kWork);
    const uint64_t number = chief.client->view().number();
    restart(fleet, 1);
    ASSERT_TRUE(soon([&] { return chief.fills().size() == 1 && chief.client->view().number() > number; }));
  }
  Chief chief(catalog, fleet, options);
  chief.keeper.set_source(all_of(*catalog, kWork), kWork);
  chief.keeper.start();
  EXPECT_EQ(chief.count(), kWork);
}

// The server that was filled first is restarted once more while the other one is being filled.
TEST(Fencing, ASecondRestartDuringAFillHeals) {
  const auto catalog = counter_on(2);
  Fleet fleet(catalog);
  Chief chief(catalog, fleet, quick(1));
  chief.keeper.set_source(all_of(*catalog, 0), 0);
  chief.keeper.start();
  chief.work(0);
  std::atomic<int> first = -1;
  std::atomic<bool> again = false;
  fleet.before_calls([&](int server, const std::string& method) {
    int none = -1;
    if (method != "/ps/Install" || first.compare_exchange_strong(none, server)) return;
    if (server == first || again.exchange(true)) return;
    restart(fleet, first);
    std::this_thread::sleep_for(milliseconds(300));  // it is heard of before the fill ends
  });
  for (const int server : {0, 1}) restart(fleet, server);
  ASSERT_TRUE(soon([&] { return again && chief.fills().size() >= 3; }));
  chief.work(0);
  chief.work(1);
  EXPECT_EQ(chief.count(), 2);
  const uint64_t number = chief.client->view().number();
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(chief.client->view().number(), number) << "no views without end";
}

// A primary does not hear for a while who joins its home. Until it has heard, nothing is copied; so no update that it
// answers is missing when it dies right after the copy.
TEST(Fencing, ABackupHasWhatWasAnsweredWhileThePrimaryDidNotHearOfIt) {
  const auto catalog = counter_on(2);
  Fleet fleet(catalog);
  Chief chief(catalog, fleet, quick(2));
  chief.keeper.set_source(all_of(*catalog, 0), 0);
  chief.keeper.start();
  const auto is_backed = [&] {
    const proto::View view = chief.client->view();
    return view.homes(0).backup() == 1 && view.homes(1).backup() >= 0;
  };
  ASSERT_TRUE(soon(is_backed));
  std::atomic<int> refusals = 0;
  std::atomic<bool> one_died = false;
  fleet.before_calls([&](int server, const std::string& method) {
    if (server != 0 || method != "/ps/SetView" || !one_died || refusals >= 5) return;
    if (++refusals > 1) throw Unavailable("[test] the view is lost on its way");  // all but that of the loss
  });
  one_died = true;
  restart(fleet, 1);
  std::atomic<bool> done = false;
  std::atomic<int64_t> closures = 0;
  const auto worker = fleet.client();
  std::jthread working([&] {
    while (!done) {
      worker->set_view(chief.client->view());
      chief.work(*worker, closures);
      ++closures;
    }
  });
  EXPECT_TRUE(soon([&] { return refusals == 5 && is_backed(); }));
  fleet.kill(0);
  done = true;
  EXPECT_TRUE(soon([&] {
    worker->set_view(chief.client->view());
    return chief.client->view().homes(0).primary() == 1;
  }));
  worker->set_view(chief.client->view());
  working.join();
  EXPECT_EQ(chief.count(), closures);
  EXPECT_GT(closures, 0);
}

// Another coordinator takes over. The first one was only stopped, and goes on: whatever it orders is refused.
TEST(Fencing, ARevivedCoordinatorChangesNothing) {
  const auto catalog = counter_on(2);
  const Fleet fleet(catalog);
  const TemporaryFolder folder;
  KeeperOptions options = quick(2);
  options.directory = folder.path();
  Chief first(catalog, fleet, options);
  first.keeper.set_source(all_of(*catalog, 0), 0);
  first.keeper.start();
  first.work(0);
  Chief second(catalog, fleet, options);
  second.keeper.set_source(all_of(*catalog, 0), 0);
  second.keeper.start();
  EXPECT_GT(second.client->view().epoch(), first.client->view().epoch());
  for (const int64_t closure : {0, 1}) second.work(closure);
  expect_error<FailedPrecondition>([&] { first.keeper.replace(all_of(*catalog, 50), 9); },
                                   "another coordinator is in charge");
  ASSERT_TRUE(soon([&] { return static_cast<bool>(first.loss()); }));
  expect_error<FailedPrecondition>([&] { std::rethrow_exception(first.loss()); }, "another coordinator, of epoch 2");
  expect_error<FailedPrecondition>([&] { first.keeper.forget(first.client->view(), 100); },
                                   "an order of epoch 1 came, but the coordinator of epoch 2 is in charge");
  first.keeper.stop_servers();
  for (const int server : {0, 1}) EXPECT_FALSE(const_cast<Fleet&>(fleet).server(server).stopped());
  second.work(2);
  EXPECT_EQ(second.count(), 3);
}

// A coordinator that is started again needs one server of each home, with replicas.
TEST(Fencing, ARestartedCoordinatorGoesOnWithoutALostServer) {
  const auto catalog = counter_on(3);
  Fleet fleet(catalog);
  const TemporaryFolder folder;
  KeeperOptions options = quick(2);
  options.directory = folder.path();
  {
    Chief chief(catalog, fleet, options);
    chief.keeper.set_source(all_of(*catalog, 0), 0);
    chief.keeper.start();
    for (int64_t closure = 0; closure < kWork; ++closure) chief.work(closure);
  }
  fleet.kill(2);
  options.start_timeout = seconds(10);
  Chief chief(catalog, fleet, options);
  chief.keeper.set_source(all_of(*catalog, kWork - 1), kWork - 1);
  chief.keeper.start();
  EXPECT_EQ(chief.client->view().homes(2).primary(), 0);
  EXPECT_EQ(chief.count(), kWork - 1) << "what is not in its checkpoint is scheduled again";
  chief.work(kWork - 1);
  chief.work(kWork - 2);
  EXPECT_EQ(chief.count(), kWork);
  EXPECT_THAT(chief.fills(), ::testing::IsEmpty()) << "nothing was lost that has to be repeated";
}

// A copy has as long as it needs, while it makes progress: a home of any size gets a backup over any network.
TEST(Fencing, ACopyThatTakesLongerThanACallMayEndsAllTheSame) {
  const auto catalog = counter_on(2, /*shards_each=*/30);
  Fleet fleet(catalog);
  KeeperOptions options = quick(2);
  options.call_timeout = milliseconds(500);
  Chief chief(catalog, fleet, options);
  chief.keeper.set_source(all_of(*catalog, 0), 0);
  chief.keeper.start();
  const auto is_backed = [&] {
    const proto::View view = chief.client->view();
    return view.homes(0).backup() == 1 && view.homes(1).backup() == 0;
  };
  ASSERT_TRUE(soon(is_backed));
  fleet.before_calls([&](int /*server*/, const std::string& method) {
    if (method == "/ps/Install") std::this_thread::sleep_for(milliseconds(30));  // 60 calls: 1.8 s a home
  });
  const auto begin = Deadline::Clock::now();
  restart(fleet, 1);
  ASSERT_TRUE(soon([&] { return !is_backed(); }));
  EXPECT_TRUE(soon(is_backed));
  EXPECT_GT(Deadline::Clock::now() - begin, milliseconds(1000)) << "longer than a call may take";
  chief.work(0);
  EXPECT_EQ(chief.count(), 1);
}

}  // namespace
}  // namespace cohort::fencing_test
