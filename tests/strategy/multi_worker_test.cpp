#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "collective/devices/nccl.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"

namespace cohort::multi_worker_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::with_workers;

torch::Tensor values(std::initializer_list<double> list) {
  return torch::tensor(std::vector<double>(list), torch::kDouble);
}

TEST(MultiWorker, ReplicasAreNumberedWorkerByWorker) {
  with_workers({.workers = 2, .replicas = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    EXPECT_EQ(strategy.name(), "multi_worker_mirrored");
    EXPECT_EQ(strategy.num_workers(), 2);
    EXPECT_EQ(strategy.num_local_replicas(), 2);
    EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
    EXPECT_EQ(strategy.should_checkpoint(), strategy.worker_rank() == 0);
    const auto ids = strategy.run([](Replica& replica) {
      EXPECT_EQ(replica.num_replicas_in_sync(), 4);
      return replica.id() * 10 + replica.local_id();
    });
    const int first = strategy.worker_rank() * 2;
    EXPECT_EQ(strategy.local_results(ids), (std::vector<int>{first * 10, (first + 1) * 10 + 1}));
    const auto context = strategy.input_context();
    EXPECT_EQ(context.num_input_pipelines, 2);
    EXPECT_EQ(context.input_pipeline_id, strategy.worker_rank());
    EXPECT_EQ(context.per_replica_batch_size(12), 3);
    const auto made = strategy.values_from_function([](const ValueContext& c) { return c.replica_id_in_sync_group; });
    EXPECT_EQ(made[1], first + 1);
    EXPECT_EQ(strategy.membership()->tasks().size(), 2U);
  });
}

TEST(MultiWorker, TheTopologyIsTheSameOnAllWorkers) {
  std::vector<Topology> seen(2);
  with_workers({.workers = 2, .replicas = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Topology& topology = strategy.topology();
    EXPECT_EQ(topology.axes(), (std::vector<Axis>{{"batch", 4}}));
    EXPECT_EQ(topology.replicas_of(strategy.worker_rank()),
              (std::vector<int>{2 * strategy.worker_rank(), 2 * strategy.worker_rank() + 1}));
    strategy.run([&](Replica& replica) {
      EXPECT_EQ(topology.place(replica.id()).device.index, replica.logical_device().spec.index);
      EXPECT_EQ(replica.group("batch").rank(), replica.id());
      EXPECT_EQ(replica.group("batch").size(), 4);
    });
    seen[static_cast<std::size_t>(strategy.worker_rank())] = topology;
  });
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0].place(2).device.task, 1);
}

TEST(MultiWorker, ReductionsGoOverAllWorkers) {
  with_workers({.workers = 2, .replicas = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const auto ids = strategy.run([](Replica& replica) { return torch::tensor(replica.id() + 1.0); });
    EXPECT_EQ(strategy.reduce(ReduceOp::kSum, ids).item<double>(), 10.0);
    EXPECT_EQ(strategy.reduce(ReduceOp::kMean, ids).item<double>(), 2.5);
    // Uneven and empty shares weigh by their sizes.
    const auto uneven = strategy.run([](Replica& replica) { return torch::full({replica.id()}, replica.id() * 1.0); });
    EXPECT_EQ(strategy.reduce(ReduceOp::kSum, uneven, 0).item<double>(), 14.0);
    EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kMean, uneven, 0).item<float>(), 14.0F / 6.0F);
    EXPECT_TRUE(torch::equal(strategy.gather(uneven, 0), torch::tensor({1.F, 2.F, 2.F, 3.F, 3.F, 3.F})));
    const auto wide = strategy.run([](Replica& replica) { return torch::full({2, 1}, replica.id()); });
    EXPECT_TRUE(torch::equal(strategy.gather(wide, -1), torch::arange(4).expand({2, 4})));
    expect_error<InvalidArgument>([&] { strategy.reduce(ReduceOp::kSum, torch::ones({})); }, "same on all replicas");
  });
}

// The last step leaves nothing to the second replica of worker 0, or to all of worker 1.
TEST(MultiWorker, GlobalMeanOfFlattenedValuesBearsEmptyShares) {
  for (const int64_t rows : {9, 13}) {
    with_workers({.workers = 2, .replicas = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
      const auto data = strategy.distribute(Dataset::from_tensor_slices(torch::ones({rows, 3})).batch(8));
      int64_t total = 0;
      for (const GlobalBatch& batch : data) {
        const auto parts = strategy.run(
            [](Replica& replica, const Example& share) { return replica.global_mean(share.x.reshape({-1}) * 2); },
            batch);
        EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kSum, parts).item<float>(), 2.0F);
        total += batch.global_size();
      }
      EXPECT_EQ(total, rows);
    });
  }
}

TEST(MultiWorker, ReplicasReduceWithGradients) {
  with_workers({.workers = 2, .replicas = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    strategy.run([](Replica& replica) {
      const torch::Tensor x = torch::tensor(replica.id() + 1.0, torch::requires_grad());
      const torch::Tensor sum = replica.all_reduce(ReduceOp::kSum, x);
      EXPECT_EQ(sum.item<double>(), 10.0);
      (sum * (replica.id() + 1.0)).backward();
      EXPECT_EQ(x.grad().item<double>(), 10.0);
      EXPECT_TRUE(torch::equal(replica.all_gather(torch::tensor({replica.id()})), torch::arange(4).to(torch::kInt)));
      EXPECT_FLOAT_EQ(replica.global_mean(torch::ones({replica.id()})).item<float>() * 6.0F, replica.id());
      const auto merged =
          replica.merge_call([](const Strategy& inside,
                                const PerReplica<torch::Tensor>& all) { return inside.reduce(ReduceOp::kSum, all); },
                             torch::tensor(1.0));
      EXPECT_EQ(merged.item<double>(), 4.0);
    });
  });
}

TEST(MultiWorker, VariablesStartAsTheChiefs) {
  with_workers({.workers = 2, .replicas = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const auto rank = static_cast<double>(strategy.worker_rank());
    const Variable mean = strategy.variable(values({rank}), {.aggregation = VariableAggregation::kMean});
    EXPECT_EQ(mean.read().item<double>(), 0.0);
    strategy.run([&](Replica& replica) {
      mean.assign(values({replica.id() * 1.0}));
      EXPECT_EQ(mean.read().item<double>(), 1.5);
    });
    const Variable sum = strategy.variable(
        values({0.0}), {.synchronization = VariableSynchronization::kOnRead, .aggregation = VariableAggregation::kSum});
    strategy.run([&](Replica& replica) { sum.assign_add(values({replica.id() + 1.0})); });
    EXPECT_EQ(sum.read().item<double>(), 10.0);
    sum.assign(values({8.0}));
    EXPECT_EQ(sum.read().item<double>(), 8.0);
    const Variable first = strategy.variable(values({0.0}), {.synchronization = VariableSynchronization::kOnRead,
                                                             .aggregation = VariableAggregation::kOnlyFirstReplica});
    strategy.run([&](Replica& replica) { first.assign(values({replica.id() + 5.0})); });
    EXPECT_EQ(first.read().item<double>(), 5.0);

    auto norm = strategy.mirror([&] {
      torch::nn::BatchNorm1d module(2);
      torch::nn::init::constant_(module->weight, rank + 1.0);
      return module;
    });
    EXPECT_EQ(norm[1]->weight[0].item<double>(), 1.0);
    strategy.run([&](Replica& replica) { norm[replica]->running_mean.fill_(replica.id()); });
    norm.synchronize_buffers();
    EXPECT_EQ(norm[1]->running_mean[0].item<double>(), 1.5);
  });
}

TEST(MultiWorker, AFailureOnOneWorkerReachesAllWithItsReason) {
  std::atomic<int> entering = 0;
  testing::WorkersOptions options{.workers = 3, .replicas = 2};
  options.communication.timeout = std::chrono::seconds(60);
  options.exchange.timeout = std::chrono::seconds(60);
  with_workers(options, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto step = [&] {
      strategy.run([&](Replica& replica) {
        if (replica.id() == 3) {
          for (int i = 0; i < 20'000 && entering < 5; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the others have entered the group by then
          throw std::runtime_error("no luck");
        }
        ++entering;
        replica.all_reduce(ReduceOp::kSum, torch::ones({4}));
      });
    };
    const auto begin = std::chrono::steady_clock::now();
    if (strategy.worker_rank() == 1) {
      EXPECT_THROW(step(), std::runtime_error);
    } else {
      EXPECT_THAT(error_of<Unavailable>(step), HasSubstr("worker 1: replica 3 failed: no luck"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40)) << "not at a deadline";
    EXPECT_THAT(error_of<Unavailable>([&] {
                  strategy.reduce(ReduceOp::kSum, PerReplica<torch::Tensor>({torch::ones({}), torch::ones({})}));
                }),
                HasSubstr("no luck"));
  });
}

TEST(MultiWorker, DifferentCallsAreNamed) {
  with_workers({.workers = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const int64_t size = strategy.worker_rank() + 3;
    const auto value = strategy.run([&](Replica&) { return torch::ones({size}); });
    EXPECT_THAT(error_of<FailedPrecondition>([&] { strategy.reduce(ReduceOp::kSum, value); }),
                AllOf(HasSubstr("worker 0 calls all_reduce SUM of Float[3]"),
                      HasSubstr("worker 1 calls all_reduce SUM of Float[4]")));
  });
}

TEST(MultiWorker, OneStrategyMayFollowAnother) {
  const ClusterSpec cluster = testing::loopback_workers(2);
  std::vector<std::jthread> workers;
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      for (int run = 0; run < 3; ++run) {
        const MultiWorkerMirroredStrategy strategy({.resolver = std::make_shared<SimpleResolver>(SimpleResolverOptions{
                                                        .cluster = cluster, .task = TaskId{"worker", rank}}),
                                                    .devices = {"/CPU:0"}});
        const auto ones = strategy.run([](Replica&) { return torch::ones({}); });
        EXPECT_EQ(strategy.reduce(ReduceOp::kSum, ones).item<double>(), 2.0);
      }
    });
  }
}

MultiWorkerOptions options_of(const ClusterSpec& cluster, std::optional<TaskId> task) {
  return {
      .resolver = std::make_shared<SimpleResolver>(SimpleResolverOptions{.cluster = cluster, .task = std::move(task)}),
      .devices = {"/CPU:0"}};
}

TEST(MultiWorker, AloneItNeedsNoCluster) {
  const ClusterSpec one(std::map<std::string, std::vector<std::string>>{{"worker", {"127.0.0.1:1"}}});
  const ClusterSpec with_evaluator(std::map<std::string, std::vector<std::string>>{
      {"chief", {"127.0.0.1:1"}}, {"worker", {"127.0.0.1:2"}}, {"evaluator", {"127.0.0.1:3"}}});
  for (const auto& options : {options_of({}, std::nullopt), options_of(one, TaskId{"worker", 0}),
                              options_of(with_evaluator, TaskId{"evaluator", 0})}) {
    const MultiWorkerMirroredStrategy strategy(options);
    EXPECT_EQ(strategy.num_workers(), 1);
    EXPECT_EQ(strategy.membership(), nullptr);
    EXPECT_TRUE(strategy.should_checkpoint());
    const auto three =
        strategy.run([](Replica& replica) { return replica.all_reduce(ReduceOp::kSum, torch::tensor(3.0)); });
    EXPECT_EQ(strategy.reduce(ReduceOp::kSum, three).item<double>(), 3.0);
  }
}

TEST(MultiWorker, WrongOptionsAreRefusedEvenAlone) {
  MultiWorkerOptions options = options_of({}, std::nullopt);
  options.communication.implementation = "pigeon";
  expect_error<InvalidArgument>([&] { (void)MultiWorkerMirroredStrategy(options); }, "\"pigeon\" is not known");
  options = options_of({}, std::nullopt);
  options.communication.algorithm = "star";
  expect_error<InvalidArgument>([&] { (void)MultiWorkerMirroredStrategy(options); },
                                "no algorithm \"star\" of collectives between workers, only auto, direct");
  options = options_of({}, std::nullopt);
  options.communication.bytes_per_pack = 10;
  options.exchange.bytes_per_pack = 20;
  expect_error<InvalidArgument>([&] { (void)MultiWorkerMirroredStrategy(options); },
                                "communication.bytes_per_pack is 10 and exchange.bytes_per_pack 20; give one of them");
}

TEST(MultiWorker, WrongClustersAreRefused) {
  const auto refuse = [](const MultiWorkerOptions& options, const std::string& message) {
    expect_error<InvalidArgument>([&] { (void)MultiWorkerMirroredStrategy(options); }, message);
  };
  const ClusterSpec cluster(std::map<std::string, std::vector<std::string>>{{"worker", {"127.0.0.1:1", "127.0.0.1:2"}},
                                                                            {"ps", {"127.0.0.1:3"}}});
  refuse(options_of(cluster, std::nullopt), "came without a task");
  refuse(options_of(cluster, TaskId{"worker", 2}), "worker 2");
  refuse(options_of(cluster, TaskId{"ps", 0}), "this process is ps 0, wanted a chief or a worker");
  MultiWorkerOptions odd = options_of(cluster, TaskId{"worker", 0});
  odd.communication.implementation = "pigeon";
  refuse(odd, "\"pigeon\" is not known, only auto, ring, gloo, mpi and nccl are");
  odd.communication.implementation = "nccl";
  if (has_nccl()) {
    expect_error<InvalidArgument>([&] { (void)MultiWorkerMirroredStrategy(odd); }, "nccl needs replicas on GPUs");
  } else {
    expect_error<Unimplemented>([&] { (void)MultiWorkerMirroredStrategy(odd); },
                                "NCCL between processes: this build has none");
  }
}

// Expects this message from two workers whose options differ by what `change` does to those of the second one.
void expect_difference(const std::function<void(MultiWorkerOptions&)>& change, const std::string& message) {
  const ClusterSpec cluster = testing::loopback_workers(2);
  std::vector<std::jthread> workers;
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      MultiWorkerOptions options = options_of(cluster, TaskId{"worker", rank});
      options.devices = {"/CPU:0"};
      if (rank == 1) change(options);
      EXPECT_THAT(error_of<InvalidArgument>([&] { (void)MultiWorkerMirroredStrategy(options); }), HasSubstr(message));
    });
  }
}

TEST(MultiWorker, WorkersThatDifferAreNamed) {
  const auto two_devices = cpu_devices(2);
  expect_difference([&](MultiWorkerOptions& options) { options.devices = two_devices; },
                    "the workers differ in replicas: worker 0 has 1, worker 1 has 2");
  expect_difference([](MultiWorkerOptions& options) { options.communication.overlap = true; },
                    "the workers differ in overlap: worker 0 has \"auto\", worker 1 has \"on\"");
  expect_difference([](MultiWorkerOptions& options) { options.communication.algorithm = "tree"; },
                    "the workers differ in algorithm: worker 0 has \"auto\", worker 1 has \"tree\"");
}

TEST(MultiWorker, OverlapOverMpiIsRefused) {
  MultiWorkerOptions options = options_of(testing::loopback_workers(2), TaskId{"worker", 0});
  options.communication.implementation = "mpi";
  options.communication.overlap = true;
  EXPECT_THAT(error_of<InvalidArgument>([&] { (void)MultiWorkerMirroredStrategy(options); }),
              HasSubstr("communication.overlap is true, but over mpi"));
}

TEST(MultiWorker, OverlapOfGradientsThatLeaveAfterBackwardIsRefused) {
  MultiWorkerOptions options = options_of(testing::loopback_workers(2), TaskId{"worker", 0});
  options.communication.overlap = true;
  options.sharding.stage = 1;
  EXPECT_THAT(error_of<InvalidArgument>([&] { (void)MultiWorkerMirroredStrategy(options); }),
              HasSubstr("communication.overlap is true, but gradients leave after backward with sharding.stage 1"));
}

// Returns what worker 0 says of the second of two workers, which joins the cluster with `info` and leaves it.
// What worker 0 has told of itself comes to `first`.
std::string said_of(const std::string& info, std::string* first = nullptr) {
  const ClusterSpec cluster = testing::loopback_workers(2);
  const std::jthread second([&] {
    const Membership membership(cluster, TaskId{"worker", 1}, {.info = info});
    if (first != nullptr) *first = membership.infos().front();
  });
  MultiWorkerOptions options = options_of(cluster, TaskId{"worker", 0});
  options.devices = {"/CPU:0"};
  return error_of<InvalidArgument>([&] { (void)MultiWorkerMirroredStrategy(options); });
}

TEST(MultiWorker, AWorkerThatTellsNonsenseIsNamed) {
  std::string text;
  EXPECT_THAT(said_of("[1, 2", &text), HasSubstr("the workers differ in replicas: worker 0 has 1, worker 1 has null"));
  const nlohmann::json own = nlohmann::json::parse(text);
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json odd = own;
    odd[key] = value;
    return said_of(odd.dump());
  };
  EXPECT_THAT(with("devices", {7}), HasSubstr("worker 1 has told of 1 replicas on the devices [7], wanted a name"));
  EXPECT_THAT(with("devices", nullptr), HasSubstr("worker 1 has told of 1 replicas on the devices null"));
  EXPECT_THAT(with("told", 7), HasSubstr("worker 1 has told 7, wanted a text"));
}

}  // namespace
}  // namespace cohort::multi_worker_test
