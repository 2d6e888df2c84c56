// Variables that learn: an optimizer over them takes the steps of one over a module with the same values, under every
// strategy and with every aggregation.
#include <torch/torch.h>

#include "tests/equivalence/runs.h"
#include "tests/support/errors.h"
#include "tests/support/server_cluster.h"
#include "tests/support/workers.h"

namespace cohort::equivalence::variables_test {
namespace {

using testing::expect_error;

torch::Tensor start_of_weight() {
  return torch::sin(torch::arange(kFeatures * kClasses, torch::kDouble)).view({kClasses, kFeatures});
}
torch::Tensor start_of_bias() {
  return torch::cos(torch::arange(kClasses, torch::kDouble));
}

// Made once: the workers of a test share LibTorch's generator.
const std::vector<Example>& batches() {
  static const std::vector<Example> all = global_batches(torch::kDouble, true);
  return all;
}

// Trains a linear classifier of two variables, and returns their values once it has seen that all replicas agree.
torch::Tensor after(const Strategy& strategy, const Optimizer& rule,
                    VariableAggregation aggregation = VariableAggregation::kNone) {
  const Variable weight = strategy.variable(start_of_weight(), {.name = "linear.weight", .aggregation = aggregation});
  const Variable bias = strategy.variable(start_of_bias(), {.name = "linear.bias", .aggregation = aggregation});
  const auto optimizer = strategy.optimizer({weight, bias}, rule);
  EXPECT_EQ(optimizer.parameter_names(), (std::vector<std::string>{"linear.weight", "linear.bias"}));
  const int first = strategy.input_context().input_pipeline_id * strategy.num_local_replicas();
  for (const Example& batch : batches()) {
    const PerReplica<Example> all = split(batch, strategy.num_replicas_in_sync());
    const std::vector<Example> own(all.begin() + first, all.begin() + first + strategy.num_local_replicas());
    strategy.run(
        [&](Replica& replica, const Example& share) {
          const auto each = torch::nn::functional::cross_entropy(
              torch::linear(share.x, weight.read(), bias.read()), share.y,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          optimizer[replica].minimize(replica.global_mean(each));
        },
        PerReplica<Example>(own));
  }
  EXPECT_EQ(optimizer.iterations(), kSteps);
  for (const Variable& variable : {weight, bias}) {
    for (const torch::Tensor& component : variable.components()) {
      EXPECT_TRUE(torch::equal(component, variable.components()[0])) << variable.name();
    }
  }
  return torch::cat({weight.read().reshape({-1}), bias.read()});
}

torch::Tensor after_with_a_module(const Optimizer& rule) {
  return weights_after(OneDeviceStrategy("/CPU:0"), rule, {}, [] {
    const torch::NoGradGuard no_grad;
    torch::nn::Linear linear(kFeatures, kClasses);
    linear->to(torch::kDouble);
    linear->weight.copy_(start_of_weight());
    linear->bias.copy_(start_of_bias());
    return linear;
  });
}

TEST(Variables, LearnAsTheParametersOfAModule) {
  for (const Rule& rule : rules()) {
    EXPECT_LT(distance(after(OneDeviceStrategy("/CPU:0"), rule.make()), after_with_a_module(rule.make())), 1e-9)
        << rule.name;
  }
}

class LearnUnder : public ::testing::TestWithParam<Case> {};

TEST_P(LearnUnder, TheStrategyAsOnOneDevice) {
  const auto rule = Adam({.learning_rate = 0.01});
  const torch::Tensor alone = after_with_a_module(rule);
  for (const VariableAggregation aggregation : {VariableAggregation::kNone, VariableAggregation::kSum,
                                                VariableAggregation::kMean, VariableAggregation::kOnlyFirstReplica}) {
    EXPECT_LT(distance(after(GetParam().make(), rule, aggregation), alone), 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Variables, LearnUnder, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Variables, LearnOverSeveralWorkers) {
  const auto rule = Adam({.learning_rate = 0.01});
  const torch::Tensor alone = after_with_a_module(rule);
  testing::with_workers({.workers = 2, .replicas = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const torch::Tensor values = after(strategy, rule);
    EXPECT_LT(distance(values, alone), 1e-9);
  });
}

TEST(Variables, AssignmentsAndStepsAlternate) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const Variable v = strategy.variable(torch::ones({2}, torch::kDouble), {.name = "v"});
  const auto optimizer = strategy.optimizer({v}, SGD({.learning_rate = 0.5}));
  const auto step = [&] {  // the gradient is 1 on each replica
    strategy.run([&](Replica& replica) { optimizer[replica].minimize(v.read().sum()); });
  };
  step();
  EXPECT_TRUE(torch::equal(v.read(), torch::zeros({2}, torch::kDouble)));
  v.assign(torch::full({2}, 3.0, torch::kDouble));
  step();
  EXPECT_TRUE(torch::equal(v.read(), torch::full({2}, 2.0, torch::kDouble)));
}

TEST(Variables, StateIsUnderTheirNames) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const Variable v = strategy.variable(torch::ones({2}), {.name = "v"});
  const auto optimizer = strategy.optimizer({v}, SGD({.learning_rate = 0.5, .momentum = 0.9}));
  strategy.run([&](Replica& replica) { optimizer[replica].minimize(v.read().sum()); });
  bool found = false;
  for (const auto& [name, tensor] : optimizer.state()) found = found || name.starts_with("v/");
  EXPECT_TRUE(found);
}

TEST(Variables, WhatCannotLearnIsNamed) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto optimizer_of = [&](const std::vector<Variable>& variables) {
    return [&strategy, variables] { (void)strategy.optimizer(variables, SGD()); };
  };
  const auto variable = [&](const VariableOptions& options) { return strategy.variable(torch::ones({2}), options); };
  expect_error<InvalidArgument>(optimizer_of({}), "there are no variables");
  expect_error<InvalidArgument>(optimizer_of({Variable()}), "is empty, or made under another strategy than mirrored");
  const MirroredStrategy other({.devices = cpu_devices(2)});
  expect_error<InvalidArgument>(optimizer_of({other.variable(torch::ones({2}))}), "made under another strategy");
  expect_error<InvalidArgument>(optimizer_of({variable({.name = ""})}), "an empty name");
  expect_error<InvalidArgument>(optimizer_of({variable({.name = "a"}), variable({.name = "a"})}),
                                "two variables have the name \"a\"");
  expect_error<InvalidArgument>(optimizer_of({variable({.name = "a", .trainable = false})}), "\"a\" is not trainable");
  expect_error<InvalidArgument>(
      optimizer_of({variable({.name = "a", .synchronization = VariableSynchronization::kOnRead})}),
      "\"a\" is synchronised on read");
}

TEST(Variables, ParameterServersSayWhyNot) {
  testing::ServerCluster(testing::ServerClusterOptions{}).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const Variable v = strategy.variable(torch::ones({2}), {.name = "v"});
    expect_error<Unimplemented>([&] { (void)strategy.optimizer({v}, SGD()); },
                                "parameter servers keep each variable by itself");
    if (strategy.serve()) return;
    const ClusterCoordinator coordinator(strategy);
    EXPECT_TRUE(torch::equal(v.read(), torch::ones({2})));
  });
}

}  // namespace
}  // namespace cohort::equivalence::variables_test
