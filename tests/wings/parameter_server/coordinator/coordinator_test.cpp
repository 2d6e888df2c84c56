// The whole of a parameter-server program, with its tasks as threads: what a user sees of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <array>
#include <atomic>
#include <filesystem>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/server_cluster.h"

namespace cohort::coordinator_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;
using testing::ServerCluster;
using testing::ServerClusterOptions;

using Tensors = std::vector<torch::Tensor>;

// Counts what steps see, in a variable on the servers.
struct Counting {
  explicit Counting(const ParameterServerOptions& options)
      : strategy(options), count(strategy.variable(torch::zeros({2}, torch::kLong), {.name = "count"})) {
    strategy.register_step("count", [this](const Tensors& arguments) -> Tensors {
      count.assign_add(torch::ones({2}, torch::kLong) * arguments[0]);
      return {arguments[0] * 10};
    });
    strategy.register_step("fail", [](const Tensors&) -> Tensors { throw InvalidArgument("[test] on purpose"); });
    strategy.register_step("component", [this](const Tensors&) -> Tensors { return {count.components()[0].clone()}; });
    strategy.register_step("assign", [this](const Tensors& arguments) -> Tensors {
      count.assign(arguments[0]);
      count.assign_sub(torch::ones({2}, torch::kLong));
      return {count.read()};
    });
  }

  ParameterServerStrategy strategy;
  Variable count;
};

TEST(Coordinator, StepsUpdateVariablesOnTheServers) {
  ServerCluster({.servers = 2, .workers = 3}).run([](const ParameterServerOptions& options) {
    const Counting program(options);
    if (program.strategy.serve()) return;
    EXPECT_TRUE(program.strategy.is_coordinator());
    const ClusterCoordinator coordinator(program.strategy);
    std::vector<RemoteValue> values;
    for (int64_t i = 0; i < 200; ++i) values.push_back(coordinator.schedule("count", {torch::tensor(i)}));
    coordinator.join();
    EXPECT_TRUE(coordinator.done());
    for (int64_t i = 0; i < 200; ++i) {
      EXPECT_EQ(coordinator.fetch(values[static_cast<std::size_t>(i)])[0].item<int64_t>(), 10 * i);
    }
    EXPECT_EQ(program.count.read()[1].item<int64_t>(), 199 * 100) << "read on the chief";
    program.count.assign(torch::tensor({5, 6}));
    EXPECT_TRUE(torch::equal(program.count.read(), torch::tensor({5, 6})));
    program.count.assign_add(torch::tensor({1, 1}));
    EXPECT_TRUE(torch::equal(program.count.read(), torch::tensor({6, 7})));
    const auto after = coordinator.schedule("assign", {torch::tensor({20, 30})}).fetch();
    EXPECT_TRUE(torch::equal(after[0], torch::tensor({19, 29})));
    EXPECT_GE(coordinator.num_workers(), 1);
    const ClusterCoordinator again(program.strategy);
    again.join();
  });
}

// A step sees what was known when it was scheduled, also right after it: the worker's copies are not older.
TEST(Coordinator, AStepSeesWhatWasDoneBefore) {
  ServerCluster({.servers = 1, .workers = 2}).run([](const ParameterServerOptions& options) {
    const Counting program(options);
    if (program.strategy.serve()) return;
    const ClusterCoordinator coordinator(program.strategy);
    const auto seen = [&] { return coordinator.schedule("component").fetch()[0][0].item<int64_t>(); };
    int64_t wanted = 0;
    for (int round = 0; round < 50; ++round) {
      coordinator.schedule("count", {torch::tensor(int64_t{1})});
      coordinator.join();
      EXPECT_EQ(seen(), ++wanted);
      program.count.assign_add(torch::ones({2}, torch::kLong));
      EXPECT_EQ(seen(), ++wanted);
    }
  });
}

TEST(Coordinator, ErrorsOfStepsReachTheChief) {
  ServerCluster({.workers = 2}).run([](const ParameterServerOptions& options) {
    const Counting program(options);
    if (program.strategy.serve()) return;
    const ClusterCoordinator coordinator(program.strategy);
    const RemoteValue failing = coordinator.schedule("fail");
    expect_error<InvalidArgument>([&] { coordinator.join(); }, "[test] on purpose");
    expect_error<InvalidArgument>([&] { (void)failing.fetch(); }, "[test] on purpose");
    coordinator.schedule("count", {torch::tensor(int64_t{1})});
    coordinator.join();
    expect_error<NotFound>([&] { coordinator.schedule("nothing"); },
                           "there is no step \"nothing\" among assign component count fail");
    expect_error<FailedPrecondition>([&] { coordinator.save(); }, "the strategy has no directory");
  });
}

// A chief that ends with an error leaves the others waiting; one that is started again goes on at its checkpoint, and
// what was done since is not done twice.
TEST(Coordinator, AChiefThatIsStartedAgainGoesOnAtItsCheckpoint) {
  const testing::TemporaryFolder folder;
  ServerClusterOptions options{.servers = 2, .workers = 2};
  options.strategy.directory = folder.path() / "run";
  options.strategy.replicas = 2;
  std::atomic<int> chiefs = 0;
  ServerCluster(options).run([&](const ParameterServerOptions& own) {
    const auto as_chief = [&](const ParameterServerOptions& mine) {
      const Counting program(mine);
      if (program.strategy.serve()) return;
      const ClusterCoordinator coordinator(program.strategy);
      int64_t begin = 0;
      if (coordinator.restored()) begin = std::stoll(coordinator.restored()->at("next"));
      const int chief = ++chiefs;
      EXPECT_EQ(begin, chief == 1 ? 0 : 20 * (chief - 1));
      for (int64_t i = begin; i < 60; ++i) {
        if (i > begin && i % 20 == 0) coordinator.save({{"next", std::to_string(i)}});
        coordinator.schedule("count", {torch::tensor(i)});
        if (chief < 3 && i == begin + 30) {
          coordinator.join();
          throw std::runtime_error("the chief is lost");
        }
      }
      coordinator.join();
      EXPECT_EQ(program.count.read()[0].item<int64_t>(), 59 * 30);
    };
    for (;;) {
      try {
        as_chief(own);
        return;
      } catch (const std::runtime_error& error) {
        if (std::string(error.what()) != "the chief is lost") throw;
      }
    }
  });
  EXPECT_EQ(chiefs, 3);
}

ParameterServerOptions with_jobs(const std::map<std::string, std::vector<std::string>>& jobs, const TaskId& task) {
  ParameterServerOptions options;
  options.resolver =
      std::make_shared<SimpleResolver>(SimpleResolverOptions{.cluster = ClusterSpec(jobs), .task = task});
  return options;
}

TEST(Coordinator, OptimizersMayHaveSomeNamesInCommon) {
  const ParameterServerStrategy strategy(
      with_jobs({{"chief", {"a:1"}}, {"ps", {"a:2"}}, {"worker", {"a:3"}}}, {"worker", 0}));
  const auto net = [&](const char* first) {
    return strategy.mirror([first] {
      return torch::nn::Sequential({{first, torch::nn::Linear(1, 1)}, {"out", torch::nn::Linear(1, 1)}});
    });
  };
  const auto one = net("a");
  const auto other = net("b");
  const MirroredOptimizer of_one = strategy.optimizer(one, SGD());
  EXPECT_NO_THROW(strategy.optimizer(other, SGD()));
}

TEST(Coordinator, WhatCannotBeIsRefused) {
  expect_error<InvalidArgument>(
      [] { ParameterServerStrategy({.resolver = std::make_shared<SimpleResolver>(SimpleResolverOptions{})}); },
      "parameter_server: needs a cluster");
  expect_error<InvalidArgument>(
      [&] {
        ParameterServerStrategy(with_jobs({{"chief", {"a:1"}}, {"worker", {"a:2"}}}, {"chief", 0}));
      },
      "has no ps");
  expect_error<InvalidArgument>(
      [&] {
        ParameterServerStrategy(with_jobs({{"ps", {"a:1"}}, {"worker", {"a:2"}}}, {"worker", 0}));
      },
      "has no chief");
  ParameterServerOptions options = with_jobs({{"chief", {"a:1"}}, {"ps", {"a:2"}}, {"worker", {"a:3"}}}, {"ps", 4});
  expect_error<InvalidArgument>([&] { const ParameterServerStrategy strategy(options); }, "ps 4");
  options = with_jobs({{"chief", {"a:1"}}, {"ps", {"a:2"}}, {"worker", {"a:3"}}}, {"worker", 0});
  options.compression = "int8";
  expect_error<InvalidArgument>([&] { const ParameterServerStrategy strategy(options); }, "compression is \"int8\"");
  options.compression = "";
  options.exchange.cross_device_ops = "nccl";
  expect_error<InvalidArgument>([&] { const ParameterServerStrategy strategy(options); },
                                "cross_device_ops is \"nccl\", but gradients are added up on the CPU");
  options.exchange.cross_device_ops = "auto";
  const ParameterServerStrategy strategy(options);
  const auto nothing = [](const Tensors&) -> Tensors { return {}; };
  strategy.register_step("a", nothing);
  expect_error<InvalidArgument>([&] { strategy.register_step("a", nothing); }, "two steps of the name \"a\"");
  expect_error<InvalidArgument>([&] { strategy.register_step("b", {}); }, "is an empty function");
  expect_error<FailedPrecondition>([&] { ClusterCoordinator{strategy}; }, "this process is worker 0");
  expect_error<InvalidArgument>([&] { (void)strategy.sharded_variable({.name = "t"}); }, "got a scalar");
  const auto table = strategy.sharded_variable({.name = "t", .shape = {5, 2}});
  expect_error<InvalidArgument>([&] { (void)table.lookup(torch::ones({1})); }, "lookup wants whole numbers, got Float");
  const auto variable = strategy.variable(torch::zeros({1}), {.name = "v"});
  expect_error<FailedPrecondition>([&] { (void)variable.read(); }, "are not there before serve()");
}

TEST(Coordinator, ADamagedFolderIsNamed) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "run", "x");
  ParameterServerOptions options = ServerCluster({}).options_for({"chief", 0});
  options.directory = folder.path();
  const ParameterServerStrategy strategy(options);
  EXPECT_FALSE(strategy.serve());
  expect_error<DataLoss>([&] { ClusterCoordinator{strategy}; }, "/run is damaged: wanted the number of the run");
}

TEST(Coordinator, AVariableAfterServeIsRefused) {
  ServerCluster({}).run([](const ParameterServerOptions& options) {
    const Counting program(options);
    if (program.strategy.serve()) return;
    expect_error<FailedPrecondition>([&] { (void)program.strategy.variable(torch::zeros({1}), {.name = "late"}); },
                                     "late was made after serve()");
    expect_error<FailedPrecondition>(
        [&] { program.strategy.register_step("late", [](const Tensors& t) { return t; }); },
        "was registered after serve()");
    const ClusterCoordinator coordinator(program.strategy);
    coordinator.join();
  });
}

TEST(Coordinator, ATableCutOtherwiseBeginsWithTheSameValues) {
  std::vector<torch::Tensor> values;
  for (const int servers : {1, 3}) {
    ServerClusterOptions options{.servers = servers};
    options.strategy.variable_partitioner = FixedShardsPartitioner(servers);
    ServerCluster(options).run([&](const ParameterServerOptions& own) {
      const ParameterServerStrategy strategy(own);
      const auto table = strategy.sharded_variable({.name = "t", .shape = {3000, 2}, .seed = 9});
      if (strategy.serve()) return;
      const ClusterCoordinator coordinator(strategy);
      values.push_back(table.lookup(torch::arange(3000)));
      expect_error<InvalidArgument>(
          [&] {
            (void)table.lookup(torch::tensor({2, 3000}));
          },
          "t has rows 0 to 2999; there are lookups from 2 to 3000");
    });
  }
  EXPECT_TRUE(torch::equal(values[0], values[1]));
  EXPECT_NEAR(values[0].abs().max().item<double>(), 0.05, 1e-3);
}

TEST(Coordinator, EveryWorkerReadsADatasetOfItsOwn) {
  std::array<std::atomic<bool>, 2> here = {};
  ServerCluster({.workers = 2}).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const auto numbers = strategy.create_per_worker_dataset([](const InputContext& context) {
      EXPECT_EQ(context.num_input_pipelines, 2);
      return Dataset::range(4).shard(context.num_input_pipelines, context.input_pipeline_id);
    });
    strategy.register_step("next", [&](const std::vector<torch::Tensor>&) -> std::vector<torch::Tensor> {
      // Neither takes all of the steps before the other is there.
      const int worker = own.resolver->task()->index;
      here.at(static_cast<std::size_t>(worker)) = true;
      for (int i = 0; i < 3000 && !here[static_cast<std::size_t>(1 - worker)]; ++i) {
        std::this_thread::sleep_for(milliseconds(10));
      }
      const std::optional<Example> example = numbers.next();
      return {torch::tensor(worker), example ? example->x : torch::tensor(-1)};
    });
    if (strategy.serve()) return;
    expect_error<FailedPrecondition>([&] { (void)numbers.next(); }, "read by the workers' steps, not by");
    const ClusterCoordinator coordinator(strategy);
    std::vector<RemoteValue> values;
    for (int i = 0; i < 12; ++i) values.push_back(coordinator.schedule("next"));
    std::map<int64_t, std::vector<int64_t>> seen;
    for (const RemoteValue& value : values) {
      const auto result = value.fetch();
      seen[result[0].item<int64_t>()].push_back(result[1].item<int64_t>());
    }
    EXPECT_EQ(seen.size(), 2U);
    for (const auto& [worker, list] : seen) {
      const std::vector<int64_t> pass = {worker, worker + 2, -1};
      for (std::size_t i = 0; i < list.size(); ++i) EXPECT_EQ(list[i], pass[i % 3]) << "worker " << worker;
    }
  });
}

// A worker's step that stays for longer than heartbeats may be away is no loss: they come from another thread.
TEST(Coordinator, ALongStepIsNoLostWorker) {
  ServerClusterOptions options;
  options.strategy.heartbeat_timeout = milliseconds(2500);  // a busy machine may not run a thread for a while
  std::atomic<int> runs = 0;
  ServerCluster(options).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    strategy.register_step("long", [&](const Tensors&) -> Tensors {
      ++runs;
      std::this_thread::sleep_for(seconds(3));
      return {};
    });
    if (strategy.serve()) return;
    const ClusterCoordinator coordinator(strategy);
    coordinator.schedule("long");
    coordinator.join();
  });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace cohort::coordinator_test
