// What of the host takes part under a strategy whose devices are XLA's: arguments of run() that lie on the host, and
// operations that have no lowering, which run there once set_soft_device_placement(true) allows it.
#include "cohort/cluster/xla_strategy.h"
#include "cohort/device.h"
#include "cohort/error.h"
#include "cohort/function.h"
#include "cohort/train.h"
#include "tests/equivalence/runs.h"
#include "tests/support/errors.h"
#include "tests/support/xla.h"

namespace cohort::equivalence::xla_host_test {
namespace {

constexpr int64_t kWidth = 16;

// Operations without a lowering, forward or backward; of a tensor [n, kWidth], with a result of the same sizes.
struct OnHost {
  std::string name;
  std::function<torch::Tensor(const torch::Tensor&)> act;
};

const std::vector<OnHost>& operations() {
  static const std::vector<OnHost> all = {
      {"Lgamma", [](const torch::Tensor& x) { return torch::lgamma(torch::softplus(x) + 1); }},
      {"InverseMatrix",
       [](const torch::Tensor& x) {
         const torch::Tensor eye = torch::eye(4, x.options().requires_grad(false));
         return torch::linalg_inv(torch::tanh(x).view({-1, 4, 4}) * 0.2 + eye).reshape({-1, kWidth});
       }},
      {"InPlace",
       [](const torch::Tensor& x) {
         torch::Tensor y = torch::tanh(x) + 2;
         y.slice(1, 0, 4).lgamma_();
         return y;
       }},
  };
  return all;
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const OnHost& operation) : act(operation.act) {
    register_module("first", first);
    register_module("last", last);
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(act(first(x))); }

  std::function<torch::Tensor(const torch::Tensor&)> act;
  torch::nn::Linear first{kFeatures, kWidth};
  torch::nn::Linear last{kWidth, kClasses};
};
TORCH_MODULE(Net);

class XlaHost : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cohort::testing::cpu_plugin() == nullptr) GTEST_SKIP() << cohort::testing::kNoCpuPlugin;
    (void)xla(2);  // before the first backward of the process
  }
  static XlaStrategy xla(int replicas) {
    return XlaStrategy({.plugin = "cpu", .num_devices = replicas, .plugin_options = "cpu_device_count=2"});
  }
};

class XlaFallback : public XlaHost, public ::testing::WithParamInterface<OnHost> {};

TEST_P(XlaFallback, TrainsAsTheCpu) {
  const auto make = [] { return Net(GetParam()); };
  const auto rule = Adam({.learning_rate = 0.01});
  const RunOptions run{.short_batches = false};
  const auto error = cohort::testing::error_of<Unimplemented>([&] { (void)weights_after(xla(1), rule, run, make); });
  EXPECT_NE(error.find("set_soft_device_placement(true)"), std::string::npos) << error;
  set_soft_device_placement(true);
  const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule, run, make);
  for (const int replicas : {1, 2}) {
    EXPECT_LT(distance(alone, weights_after(xla(replicas), rule, run, make)), 1e-9) << replicas;
  }
  set_soft_device_placement(false);
}

torch::Tensor predicted(const Strategy& strategy, const OnHost& operation) {
  const auto scope = strategy.scope();
  torch::manual_seed(5);
  Model model([&] {
    Net net(operation);
    net->to(torch::kDouble);
    return net;
  });
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy()}});
  torch::manual_seed(21);
  const Example all{.x = torch::randn({40, kFeatures}, torch::kDouble), .y = torch::randint(kClasses, {40})};
  const Dataset data = Dataset::from_tensor_slices(all).batch(16);
  model.fit(data, {.epochs = 2, .verbose = Verbose::kSilent});
  return model.predict(data).cpu();
}

TEST_P(XlaFallback, FitsAsTheCpu) {
  set_soft_device_placement(true);
  const torch::Tensor wanted = predicted(OneDeviceStrategy("/CPU:0"), GetParam());
  EXPECT_LT(distance(wanted, predicted(xla(2), GetParam())), 1e-9);
  set_soft_device_placement(false);
}

INSTANTIATE_TEST_SUITE_P(Operations, XlaFallback, ::testing::ValuesIn(operations()),
                         [](const auto& info) { return info.param.name; });

TEST_F(XlaHost, RunMovesTensorsOfTheHostToTheReplicasDevice) {
  const XlaStrategy xlas = xla(2);
  const TPUStrategy tpu(std::make_shared<TPUClusterResolver>("local"), {.plugin = "cpu"});
  const torch::Tensor host = torch::arange(4.0);
  const Example example{.x = host, .y = host * 2, .more = {host * 3}, .inputs = {{"a", host * 4}}};
  using Several = std::tuple<int, std::vector<torch::Tensor>, std::pair<std::string, Example>>;
  for (const Strategy& strategy : {Strategy(xlas), Strategy(tpu)}) {
    const auto each = strategy.values_from_function(
        [&](const ValueContext& context) { return host + context.replica_id_in_sync_group; });
    const auto results = strategy.run(
        [](Replica& replica, const torch::Tensor& whole, const torch::Tensor& own, const Example& batch,
           const Several& several) {
          const Example& inner = std::get<2>(several).second;
          std::vector<torch::Tensor> all{whole, own, batch.x, batch.y, batch.more[0], batch.inputs[0].second};
          all.insert(all.end(), {std::get<1>(several)[0], inner.x});
          torch::Tensor sum = torch::zeros({4}, torch::device(replica.device()));
          for (const torch::Tensor& tensor : all) {
            EXPECT_EQ(tensor.device(), replica.device());
            sum = sum + tensor;
          }
          return sum + std::get<0>(several);
        },
        host, each, example, Several{100, {host * 5}, {"b", {.x = host * 6}}});
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_TRUE(results[r].device().is_xla());
      // 1 + 1 + 1 + 2 + 3 + 4 + 5 + 6 of them, the replica's number and 100.
      EXPECT_TRUE(results[r].cpu().equal(host * 23 + static_cast<double>(r) + 100)) << results[r].cpu();
    }
  }
  EXPECT_TRUE(host.device().is_cpu());
}

TEST_F(XlaHost, AFunctionGetsItsArgumentsOnTheDevice) {
  const XlaStrategy strategy = xla(2);
  const auto doubled = function([](const torch::Tensor& x) { return x * 2; }, {.name = "doubled"});
  for (int call = 0; call < 2; ++call) {
    const auto results = strategy.run(doubled, torch::full({3}, 1.0 + call));
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_TRUE(results[r].device().is_xla());
      EXPECT_TRUE(results[r].cpu().equal(torch::full({3}, 2.0 + 2 * call)));
    }
  }
  EXPECT_EQ(doubled.signatures(), (std::vector<std::string>{"doubled(f32[3] xla)"}));
}

}  // namespace
}  // namespace cohort::equivalence::xla_host_test
