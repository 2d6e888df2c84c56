// Strategies of several axes: who is in whose group, within a process and over several.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/access.h"
#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "strategy/core.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"

namespace cohort::groups_test {
namespace {

using testing::expect_error;
using testing::with_workers;

// Two replicas share a model, and two such pairs share the batch.
std::vector<Axis> mesh() {
  return {{"batch", 2}, {"model", 2, AxisRole::kModel}};
}

// A strategy like this one, with its replicas on the axes of a mesh.
Strategy on_mesh(const Strategy& strategy) {
  StrategyPlan plan = Access::core(strategy)->plan();
  std::vector<Topology::Place> places;
  for (int replica = 0; replica < strategy.topology().size(); ++replica) {
    places.push_back(strategy.topology().place(replica));
  }
  plan.topology = Topology(mesh(), places);
  return Access::make<Strategy>(std::make_shared<StrategyCore>(plan));
}

// A replica's number among all of them; its id() is that of its share of the batch.
int number_of(const Replica& replica) {
  return Access::core(replica).replica_id(replica.local_id());
}

// Compares the sums of the replicas of each group, to which each brings 10 to the power of its number.
void expect_groups(const Strategy& strategy) {
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  strategy.run([](Replica& replica) {
    const auto sum_over = [&](Communicator& group) {
      torch::Tensor sum = torch::tensor(static_cast<int64_t>(std::pow(10, number_of(replica))), torch::kLong);
      group.all_reduce({&sum, 1}, ReduceOp::kSum);
      return sum.item<int64_t>();
    };
    const bool first_pair = number_of(replica) < 2;
    const bool even = number_of(replica) % 2 == 0;
    EXPECT_EQ(sum_over(replica.group("model")), first_pair ? 11 : 1100);
    EXPECT_EQ(sum_over(replica.group("batch")), even ? 101 : 1010);
    EXPECT_EQ(sum_over(replica.communicator()), even ? 101 : 1010);
    EXPECT_EQ(replica.group("model").rank(), number_of(replica) % 2);
    EXPECT_EQ(replica.group("batch").rank(), number_of(replica) / 2);
  });
}

TEST(Groups, OfOneProcessFollowTheAxes) {
  const Strategy strategy = on_mesh(MirroredStrategy({.devices = cpu_devices(4)}));
  expect_groups(strategy);
  expect_groups(strategy);
}

TEST(Groups, OfSeveralProcessesFollowTheAxes) {
  with_workers({.workers = 2, .replicas = 2},
               [](const MultiWorkerMirroredStrategy& strategy) { expect_groups(on_mesh(strategy)); });
  with_workers({.workers = 4, .replicas = 1},
               [](const MultiWorkerMirroredStrategy& strategy) { expect_groups(on_mesh(strategy)); });
}

TEST(Groups, AFailureFreesWhoeverWaitsInALineAndTheLinesServeAgain) {
  const Strategy strategy = on_mesh(MirroredStrategy({.devices = cpu_devices(4)}));
  expect_error<DataLoss>(
      [&] {
        strategy.run([](Replica& replica) {
          if (number_of(replica) == 0) throw DataLoss("[test] a torn record");
          replica.group("model").barrier();
        });
      },
      "a torn record");
  expect_groups(strategy);
}

TEST(Groups, GradientsAreAddedUpOverTheReplicasInSync) {
  const Strategy strategy = on_mesh(MirroredStrategy({.devices = cpu_devices(4)}));
  auto net = strategy.mirror([] { return torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)); });
  const torch::NoGradGuard no_grad;
  for (const auto& copy : net.copies()) copy->parameters().front().zero_();
  auto sgd = strategy.optimizer(net, SGD({.learning_rate = 1.0}));
  strategy.run([&](Replica& replica) {
    const torch::AutoGradMode on(true);
    sgd[replica].minimize(net[replica]->forward(torch::full({1, 1}, std::pow(10.0, number_of(replica)))).sum());
  });
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(net.copies()[i]->parameters().front().item<float>(), i % 2 == 0 ? -101.0F : -1010.0F);
  }
}

}  // namespace
}  // namespace cohort::groups_test
