// What a step asks of wings that divide the work of a replica or the states of the optimizer; they are stand-ins.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/access.h"
#include "cohort/strategy.h"
#include "cohort/update_rules.h"
#include "step/exchange/exchange.h"
#include "step/exchange/in_shards.h"
#include "step/step_in_parts.h"
#include "strategy/context.h"
#include "strategy/core.h"
#include "strategy/remote_variables.h"
#include "strategy/replica_scope.h"
#include "strategy/strategies/devices.h"
#include "tests/support/extensions.h"

namespace cohort::parts_of_wings_test {
namespace {

using testing::Extensions;

torch::nn::Linear line() {
  torch::nn::Linear made(torch::nn::LinearOptions(1, 1).bias(false));
  const torch::NoGradGuard no_grad;
  made->weight.fill_(1.0);
  return made;
}

torch::Tensor output(torch::nn::LinearImpl& net, double x) {
  return net.forward(torch::full({1, 1}, x)).sum();
}

StrategyPlan plan_of_one() {
  return local_plan("parts", choose_devices("parts", cpu_devices(1)));
}

Strategy strategy_of(StrategyPlan plan) {
  return Access::make<Strategy>(std::make_shared<StrategyCore>(std::move(plan)));
}

// -- A function gets a part of the share at a time.

// A scope in which nothing but minimize() has a meaning.
class WholeScope final : public ReplicaScope {
 public:
  explicit WholeScope(at::Generator generator) : generator_(std::move(generator)) {}
  int64_t examples() const override { return -1; }
  at::Generator& generator() override { return generator_; }
  Communicator& group(std::string_view /*axis*/) override { throw std::logic_error("there is no line"); }
  std::vector<torch::Tensor> at_cut(const std::vector<torch::Tensor>& values) override { return values; }
  bool begins_at(std::string_view /*name*/) override { return false; }
  void minimize(LaterStep step) override { steps.push_back(std::move(step)); }
  void after_step(std::function<void(const Replica&)> /*act*/) override {}
  bool elsewhere() const override { return false; }
  void note_use(const torch::Tensor& /*tensor*/) override {}
  void note_change(const torch::Tensor& /*tensor*/) override {}

  std::vector<LaterStep> steps;

 private:
  at::Generator generator_;
};

// Runs the function twice in such a scope, and then the steps that it has handed over.
class TwiceInScope final : public ReplicaRunner {
 public:
  void run(detail::Job& job, Replica& replica) override {
    WholeScope scope(at::detail::getDefaultCPUGenerator());
    thread_context().replica_scope = &scope;
    job.run(replica);
    job.run(replica);
    thread_context().replica_scope = nullptr;
    ASSERT_EQ(scope.steps.size(), 2U);
    std::vector<torch::Tensor> sums =
        torch::autograd::grad({scope.steps[0].loss + scope.steps[1].loss}, scope.steps[0].parameters);
    scope.steps[0].update(replica, std::move(sums));
  }
};

// Hands the losses to the scope.
class Parts final : public StepInParts {
 public:
  static inline int laid_out_steps = 0;

  void laid_out(Step& step) override {
    ++laid_out_steps;
    EXPECT_EQ(flat(step).parameters().size(), 1U) << "the parameters are known by then";
  }
  void minimize(Step& step, ReplicaScope& scope, const Replica& replica, const torch::Tensor& loss) override {
    std::vector<torch::Tensor> parameters;
    for (const FlatGroup& group : flat(step).groups()) {
      parameters.push_back(module(step).copies()[static_cast<std::size_t>(replica.local_id())]->parameters()[0]);
      EXPECT_EQ(group.copies.size(), 1U);
    }
    scope.minimize({.owner = &step,
                    .loss = scaled(step, replica, loss),
                    .parameters = parameters,
                    .update = [&step](Replica& own, std::vector<torch::Tensor> sums) {
                      update(step, own, {.gradients = std::move(sums), .scaled = true});
                    }});
  }
};

TEST(StepInPartsTest, ALossOfAPartIsHandedToTheScopeAndTheUpdateIsMadeOnce) {
  const Extensions<MakeStepInParts> parts(
      {{.make = []() -> std::unique_ptr<StepInParts> { return std::make_unique<Parts>(); }}});
  Parts::laid_out_steps = 0;
  StrategyPlan plan = plan_of_one();
  plan.in_microbatches = true;
  plan.runner = [](StrategyCore&, int) { return std::make_unique<TwiceInScope>(); };
  const Strategy strategy = strategy_of(std::move(plan));
  const auto net = strategy.mirror(line);
  const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
  EXPECT_EQ(Parts::laid_out_steps, 1);
  int part = 0;
  strategy.run([&](Replica& replica) { sgd[replica].minimize(output(*net[replica], 2.0 + part++)); });
  // The gradients are 2 and 3.
  EXPECT_NEAR(net.state().front().second.item<double>(), 1.0 - 0.1 * (2.0 + 3.0), 1e-6);
}

// -- A replica keeps the gradients of its shard alone.

struct Calls {
  int scattered = 0;
  std::vector<double> updates;  // the sum of each
  double grad_scale = 0.0;
};
Calls calls;  // the maker is a plain function

// The one replica has one shard.
class OneShard final : public Exchange, public ExchangeInShards {
 public:
  explicit OneShard(FlatParameters& flat) : Exchange(flat) {}

  Verdict step(Replica& /*replica*/, std::vector<torch::Tensor> gradients, bool /*reduced*/,
               StepContext /*context*/) override {
    ADD_FAILURE() << "gradients of several calls go by shards, got " << gradients.size();
    return true;
  }
  ExchangeInShards* shards() override { return this; }
  Slots slots() const override { return {}; }

  std::vector<torch::Tensor> scatter(Replica& /*replica*/, std::vector<torch::Tensor> gradients,
                                     bool /*reduced*/) override {
    ++calls.scattered;
    return gradients;
  }
  Verdict update(Replica& /*replica*/, std::vector<torch::Tensor> sums, StepContext context) override {
    calls.updates.push_back(sums.at(0).item<double>());
    calls.grad_scale = context.grad_scale;
    return true;
  }
  std::vector<torch::Tensor> in_place(int /*local_id*/, const std::vector<torch::Tensor>& sums) const override {
    return sums;
  }
};

// The path to an exchange that the core does not have.
struct Nobody final : RemoteCluster {
  RemoteVariables& variables() override { throw std::logic_error("nobody keeps variables"); }
};

void train_in_shards(const GradientOptions& gradient) {
  const Extensions<ExchangeMaker> exchanges(
      {{.path = GradientPath::kServers, .make = [](const ExchangeParts& parts) -> std::unique_ptr<Exchange> {
          return std::make_unique<OneShard>(parts.flat);
        }}});
  calls = {};
  StrategyPlan plan = plan_of_one();
  plan.placement = std::make_shared<ServersPlacement>(plan.devices, plan.devices.front(), std::make_shared<Nobody>());
  plan.exchange.cross_device_ops = "reduction_to_one_device";
  const Strategy strategy = strategy_of(std::move(plan));
  const auto net = strategy.mirror(line);
  const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1, .gradient = gradient}));
  for (const double x : {2.0, 3.0, 5.0, 1.0, 1.0, 1.0, 7.0}) {
    strategy.run([&](Replica& replica) { sgd[replica].minimize(output(*net[replica], x)); });
  }
}

TEST(ExchangeInShardsTest, SumsOfSeveralCallsAreThoseOfTheShard) {
  train_in_shards({.gradient_accumulation_steps = 3});
  EXPECT_EQ(calls.scattered, 7);
  EXPECT_EQ(calls.updates, (std::vector<double>{2.0 + 3.0 + 5.0, 3.0})) << "the last call waits for two more";
  EXPECT_NEAR(calls.grad_scale, 1.0 / 3.0, 1e-12);
}

// The scale may be another one when the sums are applied.
TEST(ExchangeInShardsTest, SumsAreKeptWithoutTheScaleOfTheLoss) {
  train_in_shards({.gradient_accumulation_steps = 3, .loss_scale = LossScale{}});
  EXPECT_EQ(calls.updates, (std::vector<double>{10.0, 3.0}));
  EXPECT_NEAR(calls.grad_scale, 1.0 / 3.0, 1e-12);
}

}  // namespace
}  // namespace cohort::parts_of_wings_test
