// A step that failed leaves nothing behind: the steps after it are those of a run that never made it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"

namespace cohort::failed_step_test {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(6, 5));
    second = register_module("second", torch::nn::Linear(5, 4));
    third = register_module("third", torch::nn::Linear(4, 3));
    to(torch::kDouble);
    at::Generator generator = at::detail::createCPUGenerator(9);
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& each : parameters()) each.copy_(torch::randn(each.sizes(), generator, torch::kDouble) * 0.4);
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(Net);

// How one replica, the last one, fails.
enum class Failure { kNone, kInForward, kInBackward, kAfterBackwardOfItsOwn };

struct Row {
  std::string name;
  std::function<std::unique_ptr<Strategy>()> make;
};

Row mirrored(const std::string& name, int replicas, int stage, const ExchangeOptions& exchange = {}) {
  ShardingOptions sharding;
  sharding.stage = stage;
  if (stage == 3) sharding.min_unit_bytes = 0;
  return {name, [=] {
            return std::make_unique<MirroredStrategy>(
                MirroredOptions{.devices = cpu_devices(replicas), .exchange = exchange, .sharding = sharding});
          }};
}

std::vector<Row> rows() {
  ExchangeOptions low_rank{.cross_device_ops = "reduction_to_one_device", .gradient_compression = "power_sgd"};
  low_rank.power_sgd = {.start_power_sgd_iter = 1, .min_compression_rate = 0.1};
  const auto central = [] {
    return std::make_unique<CentralStorageStrategy>(
        CentralStorageOptions{.compute_devices = cpu_devices(2), .parameter_device = "/CPU:0"});
  };
  const auto pipeline = [] {
    return std::make_unique<PipelineStrategy>(
        PipelineOptions{.devices = cpu_devices(1), .schedule = Schedule1F1B{.microbatches = 2}});
  };
  return {mirrored("one_replica", 1, 0),
          mirrored("two_replicas", 2, 0),
          mirrored("three_replicas_stage_1", 3, 1, {.cross_device_ops = "hierarchical_copy"}),
          mirrored("two_replicas_stage_2", 2, 2),
          mirrored("two_replicas_stage_3", 2, 3),
          mirrored("messages", 2, 0, {.cross_device_ops = "reduction_to_one_device"}),
          mirrored("factors_of_low_rank", 2, 0, low_rank),
          {"central_storage", central},
          {"pipeline", pipeline}};
}

void train(const Strategy& strategy, const Mirrored<Net>& net, const MirroredOptimizer& sgd, int step,
           Failure failure) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
  const Example batch{.x = torch::randn({12, 6}, generator, torch::kDouble),
                      .y = torch::randn({12, 3}, generator, torch::kDouble)};
  const int replicas = strategy.num_replicas_in_sync();
  std::vector<Example> shares;
  for (int r = 0; r < replicas; ++r) shares.push_back(batch.rows(r * 12 / replicas, (r + 1) * 12 / replicas));
  const auto explode = [] { throw std::runtime_error("the replica's own failure"); };
  strategy.run(
      [&](Replica& replica, const Example& share) {
        const Failure own = replica.id() == replicas - 1 ? failure : Failure::kNone;
        Net copy = net[replica];
        torch::Tensor inner = torch::tanh(copy->first->forward(share.x));
        if (own == Failure::kInForward) explode();
        if (own == Failure::kInBackward) {
          // The gradients of the third layer are there by then, and those of the first one are not.
          inner.register_hook([&](const torch::Tensor& gradient) { return explode(), gradient; });
        }
        const torch::Tensor out = copy->third->forward(torch::tanh(copy->second->forward(inner)));
        if (failure == Failure::kAfterBackwardOfItsOwn) out.sum().backward({}, /*retain_graph=*/true);
        if (own == Failure::kAfterBackwardOfItsOwn) explode();
        sgd[replica].minimize((out - share.y).square().sum() / 12);
      },
      PerReplica<Example>(shares));
}

torch::Tensor weights_after(const Row& row, int64_t accumulation, Failure failure) {
  const std::unique_ptr<Strategy> strategy = row.make();
  const auto net = strategy->mirror([] { return Net(); });
  const auto sgd = strategy->optimizer(
      net, SGD({.learning_rate = 0.1, .momentum = 0.5, .gradient = {.gradient_accumulation_steps = accumulation}}));
  for (int step = 0; step < 6; ++step) {
    if (failure != Failure::kNone && (step == 2 || step == 3)) {
      EXPECT_THAT(error_of<std::runtime_error>([&] { train(*strategy, net, sgd, 100 + step, failure); }),
                  HasSubstr("the replica's own failure"));
    }
    train(*strategy, net, sgd, step, Failure::kNone);
  }
  EXPECT_EQ(sgd.iterations(), 6 / accumulation);
  std::vector<torch::Tensor> flat;
  for (const auto& [name, value] : net.state()) flat.push_back(value.reshape({-1}).clone());
  return torch::cat(flat);
}

TEST(FailedStep, LeavesNothingBehind) {
  for (const Row& row : rows()) {
    for (const int64_t accumulation : {1, 2, 3}) {
      const torch::Tensor wanted = weights_after(row, accumulation, Failure::kNone);
      for (const Failure failure : {Failure::kInForward, Failure::kInBackward, Failure::kAfterBackwardOfItsOwn}) {
        if (row.name == "pipeline" && failure == Failure::kAfterBackwardOfItsOwn) continue;  // it refuses these
        EXPECT_TRUE(torch::equal(weights_after(row, accumulation, failure), wanted))
            << row.name << ", " << accumulation << " call(s) an update, failure " << static_cast<int>(failure);
      }
    }
  }
}

// Each copy of a replica takes a step of both nets.
TEST(FailedStep, ReplicasThatStepOptimizersInDifferentOrdersAreNamed) {
  for (const Row& row : rows()) {
    const std::unique_ptr<Strategy> strategy = row.make();
    if (strategy->num_replicas_in_sync() == 1) continue;
    for (const int64_t accumulation : {1, 2}) {
      const auto make = [] { return Net(); };
      const auto rule = SGD({.learning_rate = 0.1, .gradient = {.gradient_accumulation_steps = accumulation}});
      const auto one = strategy->mirror(make), other = strategy->mirror(make);
      const auto of_one = strategy->optimizer(one, rule), of_other = strategy->optimizer(other, rule);
      const auto step_both = [&](bool mixed) {
        strategy->run([&](Replica& replica) {
          const torch::Tensor x = torch::full({2, 6}, 1.0 + replica.id(), torch::kDouble);
          const auto step = [&](const Mirrored<Net>& net, const MirroredOptimizer& sgd) {
            sgd[replica].minimize(net[replica]->first->forward(x).square().mean());
          };
          const bool one_first = mixed && replica.id() == 1;
          if (one_first) step(one, of_one);
          step(other, of_other);
          if (!one_first) step(one, of_one);
        });
      };
      step_both(false);
      const std::string error = error_of<FailedPrecondition>([&] { step_both(true); });
      EXPECT_THAT(error, AllOf(HasSubstr("the replicas do not do the same"), HasSubstr("replica 1 calls minimize of"),
                               HasSubstr("(SGD of first.weight, ...)")))
          << row.name;
      step_both(false);
      EXPECT_TRUE(torch::equal(one.state().front().second, other.state().front().second)) << row.name;
    }
  }
}

}  // namespace
}  // namespace cohort::failed_step_test
