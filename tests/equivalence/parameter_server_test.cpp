// Parameter servers against one device: asynchronous with one worker the same bits, synchronous with several the same
// numbers, the shares of a step uneven or empty, variables cut or not, and embeddings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "optimizer/update_rule.h"
#include "tests/equivalence/runs.h"
#include "tests/support/server_cluster.h"

namespace cohort::parameter_server_test {
namespace {

namespace F = torch::nn::functional;
using testing::ServerCluster;

constexpr int64_t kSteps = 20;

struct NetImpl : torch::nn::Module {
  // The names of its parameters begin with "prefix": those of several nets on the same servers have to differ.
  explicit NetImpl(torch::ScalarType dtype, const std::string& prefix = "") {
    first = register_module(prefix + "first", torch::nn::Linear(7, 9));
    second = register_module(prefix + "second", torch::nn::Linear(9, 3));
    to(dtype);
    // The values come from a generator of their own: the tasks are threads here, and make their modules at the same
    // time.
    auto generator = at::detail::createCPUGenerator(1);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.copy_(torch::randn(parameter.sizes(), generator, dtype) * 0.4);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
};
TORCH_MODULE(Net);

Example batch(int64_t step, torch::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step) + 5);
  return {.x = torch::randn({12, 7}, generator, dtype), .y = torch::randint(0, 3, {12}, generator, torch::kLong)};
}

std::map<std::string, torch::Tensor> values_of(const Mirrored<Net>& net, const std::string& prefix = "") {
  std::map<std::string, torch::Tensor> values;
  for (const auto& parameter : net[0]->named_parameters()) {
    values[parameter.key().substr(prefix.size())] = parameter.value().detach().clone();
  }
  return values;
}

torch::Tensor train(const Strategy& strategy, const Mirrored<Net>& net, const MirroredOptimizer& optimizer,
                    const Example& example) {
  const auto losses = strategy.run(
      [&](Replica& replica, const Example& share) {
        const auto each = F::cross_entropy(net[replica]->forward(share.x), share.y,
                                           F::CrossEntropyFuncOptions().reduction(torch::kNone));
        const auto loss = replica.global_mean(each);
        optimizer[replica].minimize(loss);
        return loss.detach();
      },
      example);
  return strategy.reduce(ReduceOp::kSum, losses);
}

struct Outcome {
  std::map<std::string, torch::Tensor> values;
  std::vector<double> losses;
};

Outcome on_one_device(const Optimizer& rule, torch::ScalarType dtype) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto net = strategy.mirror([&] { return Net(dtype); });
  const auto optimizer = strategy.optimizer(net, rule);
  Outcome outcome;
  for (int64_t step = 0; step < kSteps; ++step) {
    outcome.losses.push_back(train(strategy, net, optimizer, batch(step, dtype)).item<double>());
  }
  outcome.values = values_of(net);
  return outcome;
}

// Trains a net by each of the rules in one cluster. `cuts`: where each step's batch of 12 is cut into shares.
std::vector<Outcome> on_servers(const testing::ServerClusterOptions& options, const std::vector<Optimizer>& rules,
                                torch::ScalarType dtype, const std::vector<int64_t>& cuts = {}) {
  std::vector<Outcome> outcomes(rules.size());
  ServerCluster(options).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    std::vector<Mirrored<Net>> nets;
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const auto net = strategy.mirror([&] { return Net(dtype, c10::str("net", i, "_")); });
      const auto optimizer = strategy.optimizer(net, rules[i]);
      nets.push_back(net);
      const auto step = [&strategy, net, optimizer](const std::vector<torch::Tensor>& arguments) {
        return std::vector{train(strategy, net, optimizer, {.x = arguments[0], .y = arguments[1]})};
      };
      strategy.register_step(c10::str("train ", i), step);
    }
    if (strategy.serve()) return;
    const ClusterCoordinator coordinator(strategy);
    for (std::size_t i = 0; i < rules.size(); ++i) {
      for (int64_t step = 0; step < kSteps; ++step) {
        const Example whole = batch(step, dtype);
        std::vector<std::vector<torch::Tensor>> shares;
        int64_t first = 0;
        for (std::size_t s = 0; s <= cuts.size(); ++s) {
          const int64_t last = s < cuts.size() ? cuts[s] : 12;
          shares.push_back({whole.x.slice(0, first, last), whole.y.slice(0, first, last)});
          first = last;
        }
        double loss = 0.0;
        for (const RemoteValue& value : coordinator.schedule_shares(c10::str("train ", i), shares)) {
          loss += value.fetch()[0].item<double>();
        }
        outcomes[i].losses.push_back(loss);
      }
    }
    coordinator.pull();
    for (std::size_t i = 0; i < rules.size(); ++i) outcomes[i].values = values_of(nets[i], c10::str("net", i, "_"));
  });
  return outcomes;
}

TEST(ParameterServers, OneWorkerAloneTakesTheStepsOfOneDeviceBitForBit) {
  const std::vector<Optimizer> rules{Adam({.learning_rate = 0.01}), SGD({.learning_rate = 0.1, .momentum = 0.9}),
                                     Adagrad({.learning_rate = 0.1}), RMSprop({.learning_rate = 0.01})};
  for (const int servers : {1, 2}) {
    const std::vector<Outcome> got = on_servers({.servers = servers}, rules, torch::kFloat);
    for (std::size_t i = 0; i < rules.size(); ++i) {
      SCOPED_TRACE(rules[i].name());
      const Outcome wanted = on_one_device(rules[i], torch::kFloat);
      EXPECT_EQ(got[i].losses, wanted.losses);
      for (const auto& [name, value] : wanted.values) EXPECT_TRUE(torch::equal(got[i].values.at(name), value)) << name;
    }
  }
}

// The losses of a critic, which sees what a generator makes beside a part of x, or those of the generator.
torch::Tensor gan_losses(Net generator, Net critic, const torch::Tensor& x, bool of_critic) {
  const torch::Tensor made = torch::cat({generator->forward(x), x.slice(1, 0, 4)}, 1);
  const torch::Tensor scores = torch::tanh(critic->forward(of_critic ? made.detach() : made)).sum(1);
  return of_critic ? scores : -scores;
}

// The generator's loss flows through the critic, where it leaves nothing for the critic's next step.
TEST(ParameterServers, TwoOptimizersInOneStepGiveGradientsToTheirOwnParametersAlone) {
  constexpr double kRate = 0.05;
  const std::vector<std::string> names{"generator_", "critic_"};
  const auto net_of = [&](int i) { return Net(torch::kDouble, names[static_cast<std::size_t>(i)]); };
  std::vector<Net> alone{net_of(0), net_of(1)};
  for (int64_t step = 0; step < 5; ++step) {
    for (const int i : {1, 0}) {
      for (Net& net : alone) net->zero_grad();
      gan_losses(alone[0], alone[1], batch(step, torch::kDouble).x, i == 1).mean().backward();
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& each : alone[static_cast<std::size_t>(i)]->parameters()) each.sub_(each.grad() * kRate);
    }
  }
  std::vector<std::map<std::string, torch::Tensor>> got(2);
  ServerCluster({.servers = 2}).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    std::vector<Mirrored<Net>> nets;
    std::vector<MirroredOptimizer> optimizers;
    for (const int i : {0, 1}) {
      nets.push_back(strategy.mirror([&] { return net_of(i); }));
      optimizers.push_back(strategy.optimizer(nets.back(), SGD({.learning_rate = kRate})));
    }
    strategy.register_step("gan", [&](const std::vector<torch::Tensor>& arguments) -> std::vector<torch::Tensor> {
      strategy.run(
          [&](Replica& replica, const Example& share) {
            for (const std::size_t i : {1, 0}) {
              const auto losses = gan_losses(nets[0][replica], nets[1][replica], share.x, i == 1);
              optimizers[i][replica].minimize(replica.global_mean(losses));
            }
          },
          Example{.x = arguments[0], .y = arguments[1]});
      return {};
    });
    if (strategy.serve()) return;
    const ClusterCoordinator coordinator(strategy);
    for (int64_t step = 0; step < 5; ++step) {
      const Example whole = batch(step, torch::kDouble);
      coordinator.schedule("gan", {whole.x, whole.y});
      coordinator.join();
    }
    coordinator.pull();
    for (const std::size_t i : {0, 1}) got[i] = values_of(nets[i], names[i]);
  });
  for (const std::size_t i : {0, 1}) {
    for (const auto& parameter : alone[i]->named_parameters()) {
      const torch::Tensor& value = got[i].at(parameter.key().substr(names[i].size()));
      EXPECT_TRUE(torch::allclose(value, parameter.value(), 0, 1e-12)) << parameter.key();
    }
  }
}

TEST(ParameterServers, EveryOptimizerInFloat64) {
  std::vector<Optimizer> rules;
  for (const equivalence::Rule& rule : equivalence::rules()) rules.push_back(rule.make());
  const std::vector<Outcome> got = on_servers({.servers = 2}, rules, torch::kDouble);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    SCOPED_TRACE(equivalence::rules()[i].name);
    const Outcome wanted = on_one_device(rules[i], torch::kDouble);
    for (const auto& [name, value] : wanted.values) {
      EXPECT_TRUE(torch::allclose(got[i].values.at(name), value, 0, 1e-9)) << name;
    }
  }
}

// Clipping by norm sees the gradient that a worker sends, which is a share's. Rules that need whole parameters do not
// have theirs cut.
TEST(ParameterServers, EveryOptimizerThatDoesNotClipByNormInSynchronousSteps) {
  for (const bool whole : {false, true}) {
    std::vector<Optimizer> rules;
    std::vector<std::string> names;
    for (const equivalence::Rule& rule : equivalence::rules()) {
      const Optimizer made = rule.make();
      if (made.gradient().clipnorm > 0.0 || made.gradient().global_clipnorm > 0.0) continue;
      if (made.rule().one_by_one() != whole) continue;
      rules.push_back(made);
      names.push_back(rule.name);
    }
    ASSERT_FALSE(rules.empty());
    testing::ServerClusterOptions options{.servers = 2, .workers = 2};
    options.strategy.consistency.kind = Consistency::Kind::kSynchronous;
    if (!whole) options.strategy.variable_partitioner = FixedShardsPartitioner(2);
    const std::vector<Outcome> got = on_servers(options, rules, torch::kDouble, {5});
    for (std::size_t i = 0; i < rules.size(); ++i) {
      SCOPED_TRACE(names[i]);
      const Outcome wanted = on_one_device(rules[i], torch::kDouble);
      for (const auto& [name, value] : wanted.values) {
        EXPECT_TRUE(torch::allclose(got[i].values.at(name), value, 0, 1e-9)) << name;
      }
    }
  }
}

TEST(ParameterServers, SynchronousStepsAreThoseOfOneDevice) {
  const Optimizer rule = Adam({.learning_rate = 0.01});
  const Outcome wanted = on_one_device(rule, torch::kDouble);
  const std::vector<std::vector<int64_t>> cuts = {{}, {6}, {1, 2}, {5, 5}};
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    for (const bool cut_variables : {false, true}) {
      SCOPED_TRACE(c10::str("cut ", i, cut_variables ? ", variables too" : ""));
      testing::ServerClusterOptions options{.servers = 2, .workers = 3};
      options.strategy.consistency = {.kind = Consistency::Kind::kSynchronous, .backup_workers = i == 1 ? 1 : 0};
      if (cut_variables) options.strategy.variable_partitioner = FixedShardsPartitioner(2);
      const Outcome got = on_servers(options, {rule}, torch::kDouble, cuts[i]).front();
      for (std::size_t step = 0; step < kSteps; ++step) EXPECT_NEAR(got.losses[step], wanted.losses[step], 1e-9);
      for (const auto& [name, value] : wanted.values) {
        EXPECT_TRUE(torch::allclose(got.values.at(name), value, 0, 1e-9)) << name;
      }
    }
  }
}

TEST(ParameterServers, SeveralReplicasOfAWorkerTakeOneStepTogether) {
  const Optimizer rule = Adam({.learning_rate = 0.01, .gradient = {.global_clipnorm = 0.5}});
  const Outcome wanted = on_one_device(rule, torch::kDouble);
  Outcome got;
  testing::ServerClusterOptions options;
  options.strategy.devices = cpu_devices(2);
  ServerCluster(options).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const auto net = strategy.mirror([&] { return Net(torch::kDouble); });
    const auto optimizer = strategy.optimizer(net, rule);
    strategy.register_step("train", [&](const std::vector<torch::Tensor>& arguments) -> std::vector<torch::Tensor> {
      const PerReplica<Example> shares({Example{.x = arguments[0].slice(0, 0, 5), .y = arguments[1].slice(0, 0, 5)},
                                        Example{.x = arguments[0].slice(0, 5), .y = arguments[1].slice(0, 5)}});
      const auto losses = strategy.run(
          [&](Replica& replica, const Example& share) {
            const auto each = F::cross_entropy(net[replica]->forward(share.x), share.y,
                                               F::CrossEntropyFuncOptions().reduction(torch::kNone));
            const auto loss = replica.global_mean(each);
            optimizer[replica].minimize(loss);
            return loss.detach();
          },
          shares);
      return {strategy.reduce(ReduceOp::kSum, losses)};
    });
    if (strategy.serve()) return;
    const ClusterCoordinator coordinator(strategy);
    for (int64_t step = 0; step < kSteps; ++step) {
      const Example whole = batch(step, torch::kDouble);
      coordinator.schedule("train", {whole.x, whole.y});
      coordinator.join();
    }
    coordinator.pull();
    got.values = values_of(net);
  });
  for (const auto& [name, value] : wanted.values) {
    EXPECT_TRUE(torch::allclose(got.values.at(name), value, 0, 1e-9)) << name;
  }
}

// A table on two servers against one in memory that is trained with torch's Adagrad, which treats rows alone.
TEST(ParameterServers, AnEmbeddingIsTrainedAsOneInMemory) {
  const auto fill = [](const torch::Tensor& rows, int64_t first_row) {
    rows.copy_(torch::sin(torch::arange(first_row * 4, (first_row + rows.size(0)) * 4, torch::kDouble)).view({-1, 4}));
  };
  const auto indices = [](int64_t step) { return torch::remainder(torch::arange(10).pow(2) * (step + 3), 50); };
  torch::Tensor wanted = torch::empty({50, 4}, torch::kDouble);
  fill(wanted, 0);
  wanted.requires_grad_(true);
  torch::optim::Adagrad adagrad({wanted}, torch::optim::AdagradOptions(0.1));
  for (int64_t step = 0; step < kSteps; ++step) {
    adagrad.zero_grad();
    torch::embedding(wanted, indices(step)).pow(2).sum().backward();
    adagrad.step();
  }
  for (const bool synchronous : {false, true}) {
    testing::ServerClusterOptions options{.servers = 2, .workers = synchronous ? 2 : 1};
    options.strategy.variable_partitioner = FixedShardsPartitioner(2);
    if (synchronous) options.strategy.consistency.kind = Consistency::Kind::kSynchronous;
    torch::Tensor got;
    ServerCluster(options).run([&](const ParameterServerOptions& own) {
      const ParameterServerStrategy strategy(own);
      const auto net = strategy.mirror([&] { return Net(torch::kDouble); });
      const auto optimizer = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
      const ShardedVariable table =
          strategy.sharded_variable({.name = "table",
                                     .shape = {50, 4},
                                     .dtype = torch::kDouble,
                                     .optimizer = Adagrad({.learning_rate = 0.1,
                                                           .initial_accumulator_value = 0.0,
                                                           .epsilon = 1e-10,
                                                           .formulation = Formulation::kTorch}),
                                     .initializer = fill});
      strategy.register_step("train", [&](const std::vector<torch::Tensor>& arguments) -> std::vector<torch::Tensor> {
        strategy.run([&](Replica& replica) {
          // Two lookups of one step, and a module that the loss does not depend on much.
          const auto rows =
              torch::cat({table.lookup(arguments[0].slice(0, 0, 2)), table.lookup(arguments[0].slice(0, 2))});
          EXPECT_EQ(rows.sizes(), (std::vector<int64_t>{arguments[0].size(0), 4}));
          optimizer[replica].minimize(rows.pow(2).sum() +
                                      0 * net[replica]->forward(torch::ones({1, 7}, torch::kDouble)).sum());
        });
        return {};
      });
      strategy.register_step("read", [&](const std::vector<torch::Tensor>& arguments) -> std::vector<torch::Tensor> {
        return {table.lookup(arguments[0])};
      });
      if (strategy.serve()) return;
      const ClusterCoordinator coordinator(strategy);
      EXPECT_EQ(table.part_rows(), (std::vector<int64_t>{25, 25}));
      for (int64_t step = 0; step < kSteps; ++step) {
        const torch::Tensor all = indices(step);
        if (synchronous) {
          coordinator.schedule_shares("train", {{all.slice(0, 0, 3)}, {all.slice(0, 3)}});
        } else {
          coordinator.schedule("train", {all});
        }
        coordinator.join();
      }
      got = coordinator.schedule("read", {torch::arange(50).view({5, 10})}).fetch()[0];
      EXPECT_EQ(got.sizes(), (std::vector<int64_t>{5, 10, 4}));
      EXPECT_TRUE(torch::equal(table.lookup(torch::tensor({7})), got.view({50, 4}).slice(0, 7, 8))) << "on the chief";
    });
    EXPECT_TRUE(torch::allclose(got.view({50, 4}), wanted, 0, 1e-9));
  }
}

}  // namespace
}  // namespace cohort::parameter_server_test
