// A compression by a hook of the test's own.
#include "step/exchange/comm_hook.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/extension.h"
#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "collective/gradient_compression.h"
#include "tests/support/errors.h"

namespace cohort::comm_hook_test {
namespace {

// Sums nothing but the gradients of odd updates, twice as large.
class DoubledSums final : public CommHook {
 public:
  bool sums(int64_t update) const override { return update % 2 == 1; }
  void sum(Communicator& group, const std::vector<torch::Tensor>& gradients, int64_t /*update*/) override {
    std::vector<torch::Tensor> own = gradients;
    group.all_reduce(own, ReduceOp::kSum);
    for (torch::Tensor& each : own) each.mul_(2);
  }
  std::vector<torch::Tensor> state() const override { return {}; }
  void load(std::span<const torch::Tensor> /*state*/) override {}
  void forget() override {}
};

std::unique_ptr<CommHook> make_doubled(const FlatParameters&, const ExchangeOptions&, int) {
  return std::make_unique<DoubledSums>();
}

MirroredStrategy strategy_with(const std::string& compression) {
  return MirroredStrategy(
      {.devices = cpu_devices(2),
       .exchange = {.cross_device_ops = "reduction_to_one_device", .gradient_compression = compression}});
}

TEST(CommHook, SumsTheGradientsOfItsUpdates) {
  extend(GradientCompression{.name = "doubled", .help = "twice as large", .make = make_doubled});
  const MirroredStrategy strategy = strategy_with("doubled");
  const auto net = strategy.mirror([] { return torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)); });
  strategy.run([&](Replica& replica) { net[replica]->weight.data().zero_(); });
  const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 1.0}));
  for (const float expected : {-6.0F, -9.0F}) {  // the sum is 3
    strategy.run([&](Replica& replica) {
      sgd[replica].minimize(net[replica]->weight.sum() * (replica.id() + 1));
      EXPECT_EQ(net[replica]->weight.item<float>(), expected);
    });
  }
}

TEST(CommHook, TheNamesOfTheTableAreInTheError) {
  extend(GradientCompression{.name = "doubled", .make = make_doubled});
  testing::expect_error<InvalidArgument>([] { (void)strategy_with("pigeon"); },
                                         "wanted none, bfloat16, float16, power_sgd or doubled");
}

}  // namespace
}  // namespace cohort::comm_hook_test
