#include "wings/parameter_server/coordinator/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <thread>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/wings/parameter_server/fleet.h"

namespace cohort::keeper_test {
namespace {

namespace proto = parameter_server;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;
using testing::Fleet;

std::shared_ptr<Catalog> catalog_for(int servers) {
  auto catalog = std::make_shared<Catalog>(servers, FixedShardsPartitioner(servers));
  catalog->declare({.name = "w", .shape = {6, 2}, .dtype = torch::kDouble, .optimizer = Adam()});
  catalog->declare({.name = "count", .shape = {6}, .dtype = torch::kLong});
  catalog->declare({.name = "table",
                    .shape = {1000, 4},
                    .optimizer = Adagrad({.initial_accumulator_value = 0.5}),
                    .by_rows = true,
                    .initializer = [](const torch::Tensor& rows, int64_t) { rows.fill_(3); }});
  return catalog;
}

std::shared_ptr<SavedVariables> initial() {
  auto saved = std::make_shared<SavedVariables>();
  (*saved)["w"] = {.value = torch::arange(12, torch::kDouble).view({6, 2})};
  (*saved)["count"] = {.value = torch::zeros({6}, torch::kLong)};
  return saved;
}

void add_to_count(ServerClient& client, const Catalog& catalog, int64_t closure) {
  const auto [first, last] = catalog.shards_of(1);
  std::vector<Push> pushes;
  for (std::size_t shard = first; shard < last; ++shard) {
    pushes.push_back({.shard = static_cast<uint32_t>(shard),
                      .kind = proto::PushRequest::ADD,
                      .id = {.closure = closure},
                      .value = torch::ones(catalog.shards()[shard].spec.shape, torch::kLong)});
  }
  client.push(pushes);
}

KeeperOptions quick(int replicas) {
  return {.run = 7,
          .replicas = replicas,
          .start_timeout = seconds(20),
          .return_timeout = seconds(20),
          .report_interval = seconds(5),
          .heartbeat_timeout = seconds(2),  // servers that are killed refuse connections, which is known at once
          .call_timeout = seconds(10)};
}

// A coordinator's part: a client, and a keeper that tells it (and other clients) the views.
struct Coordinator {
  Coordinator(
      const std::shared_ptr<Catalog>& catalog, const Fleet& fleet, const KeeperOptions& options,
      const std::function<void()>& restored = [] {}, std::vector<ServerClient*> others = {})
      : client(fleet.client()),
        keeper(catalog, *client, options,
               {.view =
                    [others](const proto::View& view) {
                      for (ServerClient* other : others) other->set_view(view);
                    },
                .restored =
                    [restored](int64_t) {
                      restored();
                      return true;
                    },
                .lost =
                    [this](const std::exception_ptr& error) {
                      const std::lock_guard lock(mutex);
                      lost = error;
                    }}) {}

  std::exception_ptr lost_server() {
    const std::lock_guard lock(mutex);
    return lost;
  }

  std::mutex mutex;
  std::exception_ptr lost;
  std::unique_ptr<ServerClient> client;
  ServerKeeper keeper;
};

torch::Tensor count_of(Coordinator& coordinator, const Catalog& catalog) {
  return collect(*coordinator.client, catalog, seconds(20)).at("count").value;
}

TEST(Keeper, GivesTheServersWhatTheyBeginWithAndCollectsIt) {
  const auto catalog = catalog_for(2);
  const Fleet fleet(catalog);
  Coordinator coordinator(catalog, fleet, quick(1));
  coordinator.keeper.set_source(initial(), 0);
  coordinator.keeper.start();
  add_to_count(*coordinator.client, *catalog, 0);
  const SavedVariables saved = collect(*coordinator.client, *catalog, seconds(20));
  EXPECT_TRUE(torch::equal(saved.at("w").value, initial()->at("w").value));
  EXPECT_TRUE(torch::equal(saved.at("w").slots.at(0), torch::zeros({6, 2}, torch::kDouble)));
  EXPECT_TRUE(torch::equal(saved.at("count").value, torch::ones({6}, torch::kLong)));
  EXPECT_TRUE(torch::equal(saved.at("table").value, torch::full({1000, 4}, 3.0)));
  EXPECT_TRUE(torch::equal(saved.at("table").slots.at(0), torch::full({1000, 4}, 0.5)));
}

TEST(Keeper, WhatIsSavedFitsAnotherNumberOfServers) {
  SavedVariables saved;
  {
    const auto catalog = catalog_for(3);
    const Fleet fleet(catalog);
    Coordinator coordinator(catalog, fleet, quick(1));
    coordinator.keeper.set_source(initial(), 0);
    coordinator.keeper.start();
    const auto [first, last] = catalog->shards_of(0);
    std::vector<Push> pushes;
    for (std::size_t shard = first; shard < last; ++shard) {
      pushes.push_back({.shard = static_cast<uint32_t>(shard),
                        .id = {.closure = 4},
                        .value = torch::ones(catalog->shards()[shard].spec.shape, torch::kDouble)});
    }
    coordinator.client->push(pushes);
    saved = collect(*coordinator.client, *catalog, seconds(20));
    EXPECT_EQ(saved.at("w").iterations, 1);
  }
  const auto catalog = catalog_for(2);
  const Fleet fleet(catalog);
  Coordinator coordinator(catalog, fleet, quick(1));
  coordinator.keeper.set_source(std::make_shared<SavedVariables>(saved), 5);
  coordinator.keeper.start();
  add_to_count(*coordinator.client, *catalog, 4);  // is in it
  const SavedVariables back = collect(*coordinator.client, *catalog, seconds(20));
  for (const std::string name : {"w", "count", "table"}) {
    EXPECT_TRUE(torch::equal(back.at(name).value, saved.at(name).value)) << name;
    for (std::size_t i = 0; i < saved.at(name).slots.size(); ++i) {
      EXPECT_TRUE(torch::equal(back.at(name).slots[i], saved.at(name).slots[i])) << name;
    }
  }
  EXPECT_EQ(back.at("w").iterations, 1);
}

TEST(Keeper, AServerWithoutABackupGetsWhatWasSaved) {
  const auto catalog = catalog_for(2);
  Fleet fleet(catalog);
  std::atomic<int> restored = 0;
  Coordinator coordinator(catalog, fleet, quick(1), [&] { ++restored; });
  coordinator.keeper.set_source(initial(), 0);
  coordinator.keeper.start();
  for (int64_t closure = 0; closure < 3; ++closure) add_to_count(*coordinator.client, *catalog, closure);
  fleet.kill(1);
  std::this_thread::sleep_for(milliseconds(100));
  fleet.start(1);
  while (restored == 0) std::this_thread::sleep_for(milliseconds(5));
  // The work since is done again: only where it was lost does it count.
  for (int64_t closure = 0; closure < 3; ++closure) add_to_count(*coordinator.client, *catalog, closure);
  EXPECT_TRUE(torch::equal(count_of(coordinator, *catalog), torch::full({6}, 3, torch::kLong)));
  EXPECT_EQ(restored, 1);
}

// However long a run is, servers remember only the updates of work that may come again.
TEST(Keeper, ServersForgetWhatIsDone) {
  const auto catalog = catalog_for(1);
  const Fleet fleet(catalog);
  const auto client = fleet.client();
  std::atomic<int64_t> done = 0;
  ServerKeeper keeper(catalog, *client, quick(1), {.done_below = [&] { return done.load(); }});
  keeper.set_source(initial(), 0);
  keeper.start();
  const auto remembered = [&] {
    proto::StateRequest request;
    request.set_shard(static_cast<uint32_t>(catalog->shards_of(1).first));
    request.mutable_order()->set_epoch(client->view().epoch());
    request.mutable_order()->set_view(client->view().number());
    request.set_progress(true);
    const auto answer = client->call(0, "/ps/State", make_frame(request), seconds(20));
    rpc::Empty nothing;
    FrameReader reader(answer, nothing);
    (void)reader.take();
    return reader.take().size(0) - 1;
  };
  for (int64_t closure = 0; closure < 1500; ++closure) add_to_count(*client, *catalog, closure);
  EXPECT_EQ(remembered(), 1500);
  done = 1490;
  for (int i = 0; i < 4000 && remembered() > 10; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(remembered(), 10);
  add_to_count(*client, *catalog, 3);  // is known all the same
  EXPECT_EQ(collect(*client, *catalog, seconds(20)).at("count").value[0].item<int64_t>(), 1500);
}

TEST(Keeper, AServerThatStaysAwayIsNamed) {
  const auto catalog = catalog_for(2);
  Fleet fleet(catalog);
  KeeperOptions options = quick(1);
  options.return_timeout = milliseconds(300);
  Coordinator coordinator(catalog, fleet, options);
  coordinator.keeper.set_source(initial(), 0);
  coordinator.keeper.start();
  fleet.kill(1);
  for (int i = 0; i < 6000 && !coordinator.lost_server(); ++i) std::this_thread::sleep_for(milliseconds(5));
  ASSERT_TRUE(coordinator.lost_server());
  expect_error<Unavailable>([&] { std::rethrow_exception(coordinator.lost_server()); },
                            "ps 1 was lost and has not come back within 300 ms");
}

// Three servers with backups, one killed at a time and started again, while threads add: nothing is lost or doubled,
// and nothing had to be restored.
TEST(Keeper, WithBackupsNothingIsLost) {
  const auto catalog = catalog_for(3);
  Fleet fleet(catalog);
  std::vector<std::unique_ptr<ServerClient>> clients;
  std::vector<ServerClient*> others;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(fleet.client());
    others.push_back(clients.back().get());
  }
  std::atomic<int> restored = 0;
  // On a busy machine another server may be silent for a while, and must not count as lost as well: then something
  // would be restored.
  KeeperOptions patient = quick(2);
  patient.heartbeat_timeout = seconds(5);
  Coordinator coordinator(
      catalog, fleet, patient, [&] { ++restored; }, others);
  coordinator.keeper.set_source(initial(), 0);
  coordinator.keeper.start();
  std::atomic<int64_t> closures = -1;
  uint64_t before = 0;  // the number of the view in which a server was killed
  const auto is_whole = [&] {
    const proto::View view = coordinator.client->view();
    return view.number() > before &&
           std::all_of(view.homes().begin(), view.homes().end(), [&](const proto::View::Home& home) {
             return &home == &view.homes(home.primary()) && home.backup() == (home.primary() + 1) % 3 &&
                    home.joining() < 0;
           });
  };
  {
    std::atomic<bool> done = false;
    std::vector<std::jthread> workers;
    for (const auto& client : clients) {
      workers.emplace_back([&] {
        while (!done) add_to_count(*client, *catalog, ++closures);
      });
    }
    const std::shared_ptr<void> at_end(nullptr, [&](void*) { done = true; });
    for (int round = 0; round < 5; ++round) {
      before = coordinator.client->view().number();
      fleet.kill(round % 3);
      std::this_thread::sleep_for(milliseconds(round % 2 == 0 ? 700 : 0));
      fleet.start(round % 3);
      std::this_thread::sleep_for(milliseconds(200));
      for (int i = 0; i < 4000 && !is_whole(); ++i) std::this_thread::sleep_for(milliseconds(5));
      ASSERT_TRUE(is_whole()) << coordinator.client->view().ShortDebugString()
                              << "every server has its own shards and a backup again";
    }
  }
  EXPECT_TRUE(torch::equal(count_of(coordinator, *catalog), torch::full({6}, closures.load() + 1, torch::kLong)));
  EXPECT_EQ(restored, 0);
  EXPECT_GT(closures, 20);
}

// What the servers have of an earlier coordinator is replaced: the next one knows what is in its checkpoint, and
// nothing else. So it may save at once, and what it saves contains no update whose id nobody knows any more.
TEST(Keeper, AnotherCoordinatorBeginsWithItsSource) {
  const auto catalog = catalog_for(2);
  const Fleet fleet(catalog);
  const testing::TemporaryFolder folder;
  KeeperOptions options = quick(2);
  options.directory = folder.path();
  for (const uint64_t epoch : {1, 2}) {
    Coordinator coordinator(catalog, fleet, options);
    coordinator.keeper.set_source(initial(), 0);
    coordinator.keeper.start({{0, 0.5}});
    EXPECT_EQ(coordinator.client->view().epoch(), epoch);
    EXPECT_EQ(coordinator.client->view().rates(0).learning_rate(), 0.5);
    EXPECT_TRUE(torch::equal(count_of(coordinator, *catalog), torch::zeros({6}, torch::kLong)));
    for (const int64_t closure : {0, 1}) add_to_count(*coordinator.client, *catalog, closure);
    EXPECT_TRUE(torch::equal(count_of(coordinator, *catalog), torch::full({6}, 2, torch::kLong)));
  }
}

TEST(Keeper, WhatIsWrongIsSaid) {
  const auto catalog = catalog_for(2);
  Fleet fleet(catalog);
  expect_error<InvalidArgument>([&] { const Coordinator none(catalog, fleet, quick(3)); }, "replicas is 3");
  const auto one = catalog_for(1);
  const Fleet single(one);
  expect_error<InvalidArgument>([&] { const Coordinator none(one, single, quick(2)); }, "there is only one");
  Coordinator coordinator(catalog, fleet, quick(1));
  expect_error<NotFound>([&] { coordinator.keeper.set_source(std::make_shared<SavedVariables>(), 0); },
                         "there is no value for w among the 0");
  const auto wrong = initial();
  (*wrong)["w"].value = torch::zeros({6, 3});
  expect_error<InvalidArgument>([&] { coordinator.keeper.set_source(wrong, 0); },
                                "w is Double[6, 2], but what was saved is Float[6, 3]");
  const auto slots = initial();
  (*slots)["w"].slots = {slots->at("w").value};
  expect_error<InvalidArgument>([&] { coordinator.keeper.set_source(slots, 0); }, "w has 2 slots, but 1 were saved");

  auto other_program = std::make_shared<Catalog>(2);
  other_program->declare({.name = "v", .shape = {1}});
  Coordinator stranger(other_program, fleet, quick(1));
  expect_error<FailedPrecondition>([&] { stranger.keeper.start(); }, "ps 0 runs another program than the coordinator");
  fleet.kill(1);
  KeeperOptions hasty = quick(1);
  hasty.start_timeout = seconds(1);
  Coordinator lonely(catalog, fleet, hasty);
  expect_error<DeadlineExceeded>([&] { lonely.keeper.start(); }, "waited 1 s for ps 1");
}

}  // namespace
}  // namespace cohort::keeper_test
