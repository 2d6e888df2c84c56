// Variables that other processes keep, as the core sees them: who keeps them stands in for parameter servers.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>

#include "base/access.h"
#include "cohort/strategy.h"
#include "cohort/variable.h"
#include "strategy/core.h"
#include "strategy/remote_variables.h"
#include "strategy/strategies/devices.h"

namespace cohort::variables_elsewhere_test {
namespace {

// Keeps the values. The copy of this process is as new as its last reading.
class Keeper final : public RemoteVariables {
 public:
  std::size_t declare(Local local) override {
    kept.push_back(local.value.clone());
    locals_.push_back(std::move(local));
    return kept.size() - 1;
  }
  Local& local(std::size_t variable) override { return locals_.at(variable); }
  bool has(const std::string& name) const override {
    return std::any_of(locals_.begin(), locals_.end(), [&](const Local& each) { return each.name == name; });
  }
  bool keeps_values() const override { return true; }
  bool keeps_slots() const override { return false; }
  void on_refresh(std::function<void()> callback) override { on_refresh_.push_back(std::move(callback)); }
  void on_save(std::function<void()> /*callback*/) override {}
  void on_release(std::function<void()> /*callback*/) override {}
  torch::Tensor look_up(std::size_t variable, const torch::Tensor& indices) override {
    return kept.at(variable).index({indices});
  }
  void apply_gradients(std::span<const std::size_t> variables, std::span<const torch::Tensor> gradients,
                       std::span<const Change> /*changes*/, double /*row_factor*/) override {
    for (std::size_t i = 0; i < variables.size(); ++i) kept.at(variables[i]).sub_(gradients[i]);
  }
  void set_learning_rate(std::span<const std::size_t> /*variables*/, double /*rate*/) override {}
  void assign(std::size_t variable, const torch::Tensor& value) override {
    ++writes;
    kept.at(variable).copy_(value);
    read(variable);
  }
  void add(std::size_t variable, const torch::Tensor& delta) override {
    ++writes;
    kept.at(variable).add_(delta);
    read(variable);
  }
  void read(std::size_t variable) override { locals_.at(variable).value.copy_(kept.at(variable)); }
  double weight() const override { return 0.5; }
  bool leads_step() const override { return true; }

  // Reads all values, as a step does.
  void refresh() {
    for (std::size_t variable = 0; variable < kept.size(); ++variable) read(variable);
    for (const auto& callback : on_refresh_) callback();
  }

  std::vector<torch::Tensor> kept;
  int writes = 0;

 private:
  std::vector<Local> locals_;
  std::vector<std::function<void()>> on_refresh_;
};

struct Keepers final : RemoteCluster {
  Keeper& variables() override { return keeper; }
  Keeper keeper;
};

Strategy strategy_over(std::shared_ptr<RemoteCluster> cluster, int replicas) {
  StrategyPlan plan = local_plan("elsewhere", choose_devices("elsewhere", cpu_devices(replicas)));
  plan.placement = std::make_shared<ServersPlacement>(plan.devices, plan.devices.front(), std::move(cluster));
  plan.exchange.cross_device_ops = "reduction_to_one_device";
  return Access::make<Strategy>(std::make_shared<StrategyCore>(std::move(plan)));
}

TEST(VariablesElsewhere, AWriteReachesTheKeeperOnce) {
  const auto cluster = std::make_shared<Keepers>();
  const Keeper& keeper = cluster->keeper;
  const Strategy strategy = strategy_over(cluster, 3);
  const Variable v = strategy.variable(torch::zeros({2}), {.name = "v", .aggregation = VariableAggregation::kSum});
  ASSERT_TRUE(keeper.has("v"));
  v.assign(torch::full({2}, 3.0));
  EXPECT_EQ(keeper.writes, 1);
  EXPECT_EQ(keeper.kept[0][0].item<double>(), 3.0);
  strategy.run([&](Replica& replica) {
    v.assign_add(torch::full({2}, replica.id() + 1.0));
    EXPECT_EQ(v.read()[1].item<double>(), 9.0);
  });
  EXPECT_EQ(keeper.writes, 2) << "one replica writes for all";
  v.assign_sub(torch::ones({2}));
  EXPECT_EQ(keeper.kept[0][0].item<double>(), 8.0);
  EXPECT_EQ(v.read()[0].item<double>(), 8.0);
}

TEST(VariablesElsewhere, WhatOthersWriteIsThereAfterAReading) {
  const auto cluster = std::make_shared<Keepers>();
  Keeper& keeper = cluster->keeper;
  const Strategy strategy = strategy_over(cluster, 2);
  const Variable first = strategy.variable(torch::zeros({2}), {.name = "first"});
  const Variable second = strategy.variable(torch::ones({3}), {.name = "second"});
  keeper.kept[0].fill_(5.0);
  keeper.kept[1].fill_(6.0);
  keeper.refresh();
  EXPECT_TRUE(torch::equal(first.components()[0], torch::full({2}, 5.0)));
  EXPECT_TRUE(torch::equal(second.components()[0], torch::full({3}, 6.0)));
}

TEST(VariablesElsewhere, AStepCountsForThePartThatTheKeeperSays) {
  const Strategy strategy = strategy_over(std::make_shared<Keepers>(), 1);
  EXPECT_EQ(Access::core(strategy)->plan().placement->step_weight(), 0.5);
}

}  // namespace
}  // namespace cohort::variables_elsewhere_test
