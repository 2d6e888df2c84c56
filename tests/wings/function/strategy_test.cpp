// Functions and compile() under a strategy whose devices record, on XLA's plugin for CPUs.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cluster/xla_strategy.h"
#include "cohort/error.h"
#include "cohort/function.h"
#include "cohort/optimizer.h"
#include "cohort/train/model.h"
#include "tests/support/errors.h"
#include "tests/support/xla.h"
#include "wings/xla/device/backend.h"
#include "wings/xla/record/recorder.h"

namespace cohort {
namespace strategy_test {
namespace {

using testing::expect_error;

class FunctionUnderStrategy : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::cpu_plugin() == nullptr) GTEST_SKIP() << testing::kNoCpuPlugin;
    (void)xla();  // before the first backward of the process
  }
  static XlaStrategy xla() { return XlaStrategy({.plugin = "cpu", .num_devices = 2}); }
};

TEST_F(FunctionUnderStrategy, IsRecordedOnceAReplica) {
  const XlaStrategy strategy = xla();
  const auto net = strategy.mirror([] { return torch::nn::Linear(3, 2); });
  std::atomic<int> calls = 0;
  const auto predict = function(
      [&](Replica& replica, const torch::Tensor& x) {
        ++calls;
        const torch::NoGradGuard no_grad;
        return net[replica]->forward(x);
      },
      {.name = "predict"});
  for (int i = 0; i < 3; ++i) {
    const torch::Tensor host = torch::randn({4, 3});
    const auto x = strategy.values_from_function(
        [&](const ValueContext& context) { return host + context.replica_id_in_sync_group; });
    const auto on_devices =
        strategy.run([](Replica& replica, const torch::Tensor& t) { return t.to(replica.device()); }, x);
    const auto once = strategy.run(predict, on_devices);
    run_functions_eagerly(true);
    const auto each_time = strategy.run(predict, on_devices);
    run_functions_eagerly(false);
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_TRUE(once[r].to(torch::kCPU).equal(each_time[r].detach().to(torch::kCPU))) << i << r;
    }
  }
  EXPECT_EQ(calls, 2 + 6);
  EXPECT_EQ(predict.signatures(), (std::vector<std::string>{"predict(f32[4, 3] xla)"}));
}

// A function around Strategy::run() is not recorded itself; the one that run() is given is.
TEST_F(FunctionUnderStrategy, AroundRunTakesPerReplicaValuesOfSeveralDevices) {
  const XlaStrategy strategy = xla();
  const auto square = function([](const torch::Tensor& x) { return (x * x).sum(); }, {.name = "square"});
  const auto around = function(
      [&](const PerReplica<torch::Tensor>& x) { return strategy.reduce(ReduceOp::kSum, strategy.run(square, x)); });
  for (const double value : {1.0, 2.0}) {
    const auto x = strategy.run(
        [&](Replica& replica) { return torch::full({3}, value * (replica.id() + 1)).to(replica.device()); });
    EXPECT_EQ(around(x).to(torch::kCPU).item<double>(), 15.0 * value * value);
  }
  EXPECT_EQ(around.experimental_get_tracing_count(), 1);
  EXPECT_EQ(square.signatures(), (std::vector<std::string>{"square(f32[3] xla)"}));
}

// The weights of all replicas after 20 steps, and the losses of the first one.
struct Steps {
  std::vector<torch::Tensor> weights;
  std::vector<double> losses;
  int calls = 0;  // of the function itself
  int64_t iterations = 0;
  double loss_scale = 0.0;
};

// Makes the steps by a function, or by the same lambda without one, in loops of so many.
Steps twenty_steps(const Strategy& strategy, const Optimizer& rule, bool within, int together = 1) {
  torch::manual_seed(3);
  const auto net = strategy.mirror([] {
    torch::nn::Sequential made(torch::nn::Linear(3, 7), torch::nn::Tanh(), torch::nn::Linear(7, 2));
    made->to(torch::kDouble);
    return made;
  });
  auto optimizer = strategy.optimizer(net, rule);
  std::atomic<int> calls = 0;
  const auto body = [&](Replica& replica, const torch::Tensor& x) {
    ++calls;
    const torch::Tensor loss = net[replica]->forward(x).square().mean();
    optimizer[replica].minimize(loss / replica.num_replicas_in_sync());
    return loss.detach();
  };
  const auto step = function(body, {.name = "step"});
  Steps steps;
  std::vector<torch::Tensor> held;
  const auto make_step = [&](int64_t /*step*/) {
    const auto x = strategy.values_from_function([](const ValueContext&) {
      return torch::randn({4, 3}, torch::kDouble);
    });
    const auto losses = strategy.run(
        [&](Replica& replica, const torch::Tensor& own) {
          const torch::Tensor share = own.to(replica.device());
          return within ? step(replica, share) : body(replica, share);
        },
        x);
    held.push_back(losses[0]);
  };
  for (int i = 0; i < 20 / together; ++i) strategy.run_loop(together, make_step);
  for (const torch::Tensor& loss : held) steps.losses.push_back(loss.to(torch::kCPU).item<double>());
  steps.iterations = optimizer.iterations();
  steps.loss_scale = optimizer.loss_scale();
  for (const auto& copy : net.copies()) {
    for (const torch::Tensor& parameter : copy->parameters()) {
      steps.weights.push_back(parameter.detach().to(torch::kCPU).clone());
    }
  }
  steps.calls = calls;
  return steps;
}

void expect_same(const Steps& got, const Steps& wanted) {
  EXPECT_EQ(got.losses, wanted.losses);
  EXPECT_EQ(got.iterations, wanted.iterations);
  EXPECT_EQ(got.loss_scale, wanted.loss_scale);
  for (std::size_t p = 0; p < got.weights.size(); ++p) EXPECT_TRUE(got.weights[p].equal(wanted.weights[p])) << p;
}

TEST_F(FunctionUnderStrategy, AnUpdateWithinHasTheBitsOfOneWithout) {
  const auto decay = ExponentialDecay({.initial_learning_rate = 0.05, .decay_steps = 3, .decay_rate = 0.7});
  const std::vector<Optimizer> rules = {SGD({.learning_rate = decay}), Adam({.learning_rate = decay}),
                                        Adam({.learning_rate = decay, .gradient = {.global_clipnorm = 0.1}})};
  for (const int replicas : {1, 2}) {
    const XlaStrategy strategy({.plugin = "cpu", .num_devices = replicas});
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const Steps wanted = twenty_steps(strategy, rules[i], false);
      const Steps got = twenty_steps(strategy, rules[i], true);
      expect_same(got, wanted);
      EXPECT_EQ(got.iterations, 20);
      expect_same(twenty_steps(strategy, rules[i], true, 5), wanted);
      // Once a replica; the first numbers of a step may be simpler ones, for which it is recorded again.
      EXPECT_LE(got.calls, 2 * replicas) << i;
    }
  }
}

TEST_F(FunctionUnderStrategy, AnUpdateCountsWhenItRuns) {
  const XlaStrategy strategy = xla();
  const auto net = strategy.mirror([] { return torch::nn::Linear(3, 2); });
  auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.5}));
  const torch::Tensor before = net[0]->weight.detach().to(torch::kCPU).clone();
  const auto step = function(
      [&](Replica& replica, const torch::Tensor& x) {
        const torch::Tensor loss = net[replica]->forward(x).sum();
        sgd[replica].minimize(loss);
      },
      {.name = "step"});
  const auto rows = [&](const std::vector<int64_t>& counts) {
    strategy.run([&](Replica& replica) {
      step(replica, torch::ones({counts[static_cast<std::size_t>(replica.id())], 3}).to(replica.device()));
    });
  };
  expect_error<Unimplemented>([&] { rows({2, 1}); }, "give all replicas the same sizes");
  EXPECT_EQ(sgd.iterations(), 0);
  EXPECT_TRUE(net[0]->weight.detach().to(torch::kCPU).equal(before));
  rows({2, 2});
  EXPECT_EQ(sgd.iterations(), 1);
  EXPECT_TRUE(net[1]->weight.detach().to(torch::kCPU).allclose(before - 0.5 * 4));
}

// A call that only adds and one that updates are two programs, which are recorded once each.
TEST_F(FunctionUnderStrategy, GradientsOfSeveralCallsAddUpWithin) {
  for (const int replicas : {1, 2}) {
    const XlaStrategy strategy({.plugin = "cpu", .num_devices = replicas});
    for (const Optimizer& rule : {SGD({.learning_rate = 0.1, .gradient = {.gradient_accumulation_steps = 3}}),
                                  Adam({.learning_rate = 0.05, .gradient = {.gradient_accumulation_steps = 4}})}) {
      const Steps wanted = twenty_steps(strategy, rule, false);
      const Steps got = twenty_steps(strategy, rule, true);
      expect_same(got, wanted);
      EXPECT_EQ(got.iterations, 20 / rule.gradient().gradient_accumulation_steps);
      EXPECT_EQ(got.calls, 2 * replicas);
      expect_same(twenty_steps(strategy, rule, true, 5), wanted);
    }
  }
}

// The first scales are too large, so that the first steps are left out.
TEST_F(FunctionUnderStrategy, ALossScaleWithinIsRecordedOnce) {
  const LossScale scale{.initial_scale = 0x1p516, .growth_steps = 4};
  const LossScale larger{.initial_scale = 0x1p1023, .growth_steps = 4};  // sums of several calls are not scaled
  const std::vector<Optimizer> rules = {
      LossScaleOptimizer(SGD({.learning_rate = 0.1}), scale),
      LossScaleOptimizer(Adam({.learning_rate = 0.05, .gradient = {.global_clipnorm = 0.1}}), scale),
      LossScaleOptimizer(SGD({.learning_rate = 0.1, .gradient = {.gradient_accumulation_steps = 2}}), larger)};
  for (const int replicas : {1, 2}) {
    const XlaStrategy strategy({.plugin = "cpu", .num_devices = replicas});
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const Steps wanted = twenty_steps(strategy, rules[i], false);
      const Steps got = twenty_steps(strategy, rules[i], true);
      expect_same(got, wanted);
      EXPECT_GT(got.iterations, 3) << i;
      EXPECT_LT(got.iterations, i == 2 ? 10 : 20) << i;
      EXPECT_EQ(got.calls, (i == 2 ? 2 : 1) * replicas) << i;
      expect_same(twenty_steps(strategy, rules[i], true, 5), wanted);
    }
  }
}

TEST_F(FunctionUnderStrategy, SumsOfSeveralCallsGoOnFromACheckpoint) {
  const XlaStrategy strategy = xla();
  const auto net = strategy.mirror([] { return torch::nn::Linear(3, 2); });
  const auto run = [&](MirroredOptimizer& sgd, int64_t calls) {
    const auto step = function(
        [&](Replica& replica, const torch::Tensor& x) { sgd[replica].minimize(net[replica]->forward(x).sum()); },
        {.name = "step"});
    for (int64_t i = 0; i < calls; ++i) {
      strategy.run([&](Replica& replica) { step(replica, torch::ones({4, 3}).to(replica.device())); });
    }
  };
  const Optimizer rule = SGD({.learning_rate = 0.5, .gradient = {.gradient_accumulation_steps = 3}});
  const torch::Tensor before = net[0]->weight.detach().to(torch::kCPU).clone();
  auto first = strategy.optimizer(net, rule);
  run(first, 2);
  EXPECT_TRUE(net[0]->weight.detach().to(torch::kCPU).equal(before));
  auto second = strategy.optimizer(net, rule);
  second.load_state(first.state());
  second.load_accumulated(first.accumulated());
  run(second, 1);
  EXPECT_TRUE(net[1]->weight.detach().to(torch::kCPU).allclose(before - 0.5 * 8));
  const std::vector<torch::Tensor> empty = second.accumulated();
  for (std::size_t i = 0; i < empty.size(); ++i) {
    EXPECT_EQ(empty[i].numel(), i % 3 == 0 ? 1 : 0) << i;  // the number of calls, and two parameters
  }
}

TEST_F(FunctionUnderStrategy, RecordingsOfFewSignaturesAreKept) {
  const DeviceScope on("/XLA:0");
  int calls = 0;
  const auto twice = function(
      [&](const torch::Tensor& x) {
        ++calls;
        return x * 2;
      },
      {.name = "twice", .kept_signatures = 2});
  const auto call = [&](int64_t size) {
    const torch::Tensor x = torch::ones({size}).to(current_torch_device());
    EXPECT_TRUE(twice(x).to(torch::kCPU).equal(torch::full({size}, 2.0)));
    return calls;
  };
  EXPECT_EQ(call(1), 1);
  EXPECT_EQ(call(2), 2);
  EXPECT_EQ(call(1), 2);
  EXPECT_EQ(call(3), 3);  // that of size 2 was called longest ago
  EXPECT_EQ(call(1), 3);
  EXPECT_EQ(call(2), 4);
  expect_error<InvalidArgument>([] { function([](const torch::Tensor& x) { return x; }, {.kept_signatures = 0}); },
                                "kept_signatures is 0, wanted 1 or more");
}

TEST_F(FunctionUnderStrategy, FewCompiledProgramsAreKept) {
  const XlaStrategy strategy({.plugin = "cpu", .num_devices = 1, .kept_programs = 3});
  const DeviceScope on("/XLA:0");
  for (int round = 0; round < 2; ++round) {
    for (int64_t size = 101; size < 107; ++size) {
      const torch::Tensor x = torch::ones({size}).to(current_torch_device());
      EXPECT_TRUE((x + 1).to(torch::kCPU).equal(torch::full({size}, 2.0)));
      EXPECT_LE(open_xla_runner()->compiled_programs(), 3U);
    }
  }
  (void)xla();
  EXPECT_EQ(record::kept_programs(), record::kKeptPrograms);
  expect_error<InvalidArgument>([] { XlaStrategy({.plugin = "cpu", .kept_programs = 0}); },
                                "kept_programs is 0, wanted 1 or more");
}

TEST_F(FunctionUnderStrategy, RunsOnTheCurrentDevice) {
  const DeviceScope on("/XLA:0");
  const torch::Tensor w = torch::ones({2}).to(current_torch_device());
  int calls = 0;
  const auto f = function([&] {
    ++calls;
    return w.add_(1) * 2;
  });
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(f().to(torch::kCPU).equal(torch::full({2}, 2.0 + 2 * i))) << i;
  EXPECT_EQ(calls, 1);
  EXPECT_NE(f.get_concrete_function().text().find("stablehlo.add"), std::string::npos);
}

// Returns what both replicas draw: by LibTorch's dropout and by the library's own.
std::vector<torch::Tensor> dropped(const Strategy& strategy) {
  const auto scope = strategy.scope();
  const auto each = strategy.run([](Replica& replica) {
    const torch::Tensor ones = torch::ones({64}, torch::device(replica.device()));
    return torch::cat({torch::dropout(ones, 0.5, true), torch::empty_like(ones).bernoulli_(0.5, replica.generator())});
  });
  return {each[0].cpu(), each[1].cpu()};
}

TEST_F(FunctionUnderStrategy, SeedsReachTheDevices) {
  torch::manual_seed(7);
  const XlaStrategy strategy = xla();
  const auto first = dropped(strategy);
  EXPECT_FALSE(first[0].equal(first[1]));
  EXPECT_FALSE(dropped(strategy)[0].equal(first[0]));
  const auto halves = [](const torch::Tensor& both) { return both.slice(0, 0, 64); };
  torch::manual_seed(7);
  const auto again = dropped(strategy);
  for (std::size_t r = 0; r < 2; ++r) EXPECT_TRUE(halves(again[r]).equal(halves(first[r]))) << r;
  std::vector<std::vector<torch::Tensor>> seeded;
  for (const uint64_t seed : {3, 4, 3}) {
    strategy.set_seed(seed);
    seeded.push_back(dropped(strategy));
  }
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(seeded[0][r].equal(seeded[2][r])) << r;
    EXPECT_FALSE(halves(seeded[0][r]).equal(halves(seeded[1][r]))) << r;
  }
}

TEST_F(FunctionUnderStrategy, AModelIsCompiledThere) {
  const XlaStrategy strategy = xla();
  const auto scope = strategy.scope();
  Sequential model{Dense(2)};
  CompileOptions options{.optimizer = SGD(), .loss = MeanSquaredError()};
  options.jit_compile = true;
  model.compile(options);
  options.jit_compile = false;
  expect_error<InvalidArgument>([&] { model.compile(options); },
                                "compile: jit_compile is false, but a replica is on xla:0, where all work is compiled");
}

}  // namespace
}  // namespace strategy_test
}  // namespace cohort
