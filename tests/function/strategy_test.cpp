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

TEST_F(FunctionUnderStrategy, AnUpdateWithinIsAnError) {
  const XlaStrategy strategy = xla();
  const auto net = strategy.mirror([] { return torch::nn::Linear(3, 2); });
  auto sgd = strategy.optimizer(net, SGD());
  const torch::Tensor before = net[0]->weight.detach().to(torch::kCPU);
  const auto step = function([&](Replica& replica) {
    sgd[replica].minimize(net[replica]->forward(torch::ones({4, 3}).to(replica.device())).square().mean());
  });
  expect_error<Unimplemented>([&] { strategy.run(step); }, "minimize() within a cohort::function on xla:");
  EXPECT_TRUE(net[0]->weight.detach().to(torch::kCPU).equal(before));
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
