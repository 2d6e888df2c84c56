// What a step takes from the program: gradients of its own backward(), sparse ones, none at all, and parameters that
// were loaded meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"
#include "tests/support/log_watch.h"

namespace cohort::step_test {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;

// No sharding, and each stage of it.
std::vector<MirroredOptions> kinds() {
  std::vector<MirroredOptions> list;
  for (const int stage : {0, 1, 2, 3}) {
    MirroredOptions options{.devices = cpu_devices(2)};
    options.sharding.stage = stage;
    if (stage == 1) options.exchange.cross_device_ops = "reduction_to_one_device";
    if (stage == 3) options.sharding.min_unit_bytes = 0;
    list.push_back(options);
  }
  return list;
}

torch::nn::Linear line(double weight) {
  torch::nn::Linear made(torch::nn::LinearOptions(1, 1).bias(false));
  made->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  made->weight.fill_(weight);
  return made;
}

double weight_of(const Mirrored<torch::nn::Linear>& net) {
  return net.state().front().second.item<double>();
}

// d/dw of w * 2 is 2 and of w * 3 is 3, on each of two replicas: 1 - 0.1 * 2 * (2 + 3) = 0.
TEST(Step, GradientsOfTheProgramsOwnBackwardAreAdded) {
  for (const MirroredOptions& options : kinds()) {
    const MirroredStrategy strategy(options);
    const auto net = strategy.mirror([] { return line(1.0); });
    const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
    strategy.run([&](Replica& replica) {
      const auto out = [&](double x) { return net[replica]->forward(torch::full({1, 1}, x, torch::kDouble)).sum(); };
      out(2.0).backward();
      sgd[replica].minimize(out(3.0));
    });
    EXPECT_NEAR(weight_of(net), 0.0, 1e-12) << "stage " << options.sharding.stage;
    strategy.run([&](Replica& replica) {
      sgd[replica].minimize(net[replica]->forward(torch::ones({1, 1}, torch::kDouble)).sum());
    });
    EXPECT_NEAR(weight_of(net), -0.2, 1e-12) << "stage " << options.sharding.stage;
  }
}

TEST(Step, GradientsThatLackTheLossScaleAreRefused) {
  for (const GradientOptions& gradient :
       {GradientOptions{.loss_scale = LossScale{}}, GradientOptions{.loss_scale_factor = 8.0}}) {
    const MirroredStrategy strategy({.devices = cpu_devices(2)});
    const auto net = strategy.mirror([] { return line(1.0); });
    const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1, .gradient = gradient}));
    const auto step = [&](bool twice) {
      strategy.run([&](Replica& replica) {
        const auto out = [&] { return net[replica]->forward(torch::ones({1, 1}, torch::kDouble)).sum(); };
        if (twice) out().backward();
        sgd[replica].minimize(out());
      });
    };
    EXPECT_THAT(error_of<FailedPrecondition>([&] { step(true); }), HasSubstr("whose loss was not scaled"));
    step(false);
    EXPECT_NEAR(weight_of(net), 0.8, 1e-12) << "the strategy can be used again";
  }
}

// Rows 1 and 3 of four get gradients: of one replica each, or of both.
TEST(Step, TakesSparseGradientsOfEmbeddings) {
  for (const MirroredOptions& options : kinds()) {
    for (const int64_t accumulation : {1, 2}) {
      const MirroredStrategy strategy(options);
      const auto net = strategy.mirror([] {
        torch::nn::Embedding made(torch::nn::EmbeddingOptions(4, 3).sparse(true));
        const torch::NoGradGuard no_grad;
        made->weight.fill_(1.0);
        return made;
      });
      const auto sgd = strategy.optimizer(
          net, SGD({.learning_rate = 0.5, .gradient = {.gradient_accumulation_steps = accumulation}}));
      for (int64_t call = 0; call < accumulation; ++call) {
        strategy.run([&](Replica& replica) {
          const std::vector<int64_t> rows = replica.id() == 0 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 3};
          sgd[replica].minimize(net[replica]->forward(torch::tensor(rows)).sum());
        });
      }
      const torch::Tensor wanted = torch::tensor({1.0F, 0.0F, 1.0F, 0.5F}).view({4, 1}).expand({4, 3});
      EXPECT_TRUE(torch::allclose(net.state().front().second, wanted)) << "stage " << options.sharding.stage;
    }
  }
}

struct WithIdleImpl : torch::nn::Module {
  WithIdleImpl() {
    used = register_module("used", torch::nn::Linear(2, 1));
    idle = register_module("idle", torch::nn::Linear(2, 1));
  }
  torch::nn::Linear used{nullptr}, idle{nullptr};
};
TORCH_MODULE(WithIdle);

TEST(Step, WarnsOnceOfParametersThatNoLossReaches) {
  for (const MirroredOptions& options : kinds()) {
    std::vector<std::string> seen;
    const testing::LogWatch watch([&](const std::string& message) { seen.push_back(message); });
    const MirroredStrategy strategy(options);
    const auto net = strategy.mirror([] { return WithIdle(); });
    const auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
    for (int step = 0; step < 25; ++step) {
      strategy.run([&](Replica& replica) {
        WithIdle copy = net[replica];
        sgd[replica].minimize(copy->used->forward(torch::ones({1, 2})).sum());
      });
    }
    ASSERT_EQ(seen.size(), 1) << "stage " << options.sharding.stage;
    EXPECT_THAT(seen.front(), AllOf(HasSubstr("idle.weight, idle.bias"), Not(HasSubstr("used."))));
  }
}

// The advice of the error is followed: momentum goes on where it was.
TEST(Step, ParametersThatWereLoadedInTheirPlaceAreNamedWithAdviceThatKeepsTheSlots) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto net = strategy.mirror([] { return line(1.0); });
  const auto rule = SGD({.learning_rate = 0.1, .momentum = 0.5, .formulation = Formulation::kTorch});
  const auto sgd = strategy.optimizer(net, rule);
  const auto step = [&](const MirroredOptimizer& optimizer) {
    strategy.run([&](Replica& replica) {
      optimizer[replica].minimize(net[replica]->forward(torch::ones({1, 1}, torch::kDouble)).sum());
    });
  };
  step(sgd);  // the velocity is 2
  std::stringstream file;
  torch::save(line(5.0), file);
  const std::string bytes = file.str();
  for (const auto& copy : net.copies()) {
    std::istringstream in(bytes);
    torch::serialize::InputArchive archive;
    archive.load_from(in);
    copy->load(archive);
  }
  EXPECT_THAT(error_of<FailedPrecondition>([&] { step(sgd); }),
              AllOf(HasSubstr("weight of replica"), HasSubstr("torch::load()"),
                    HasSubstr("MirroredModule::load_state()"), HasSubstr("load_state(state())")));
  const auto next = strategy.optimizer(net, rule);
  next.load_state(sgd.state());
  step(next);
  EXPECT_NEAR(weight_of(net), 5.0 - 0.1 * (0.5 * 2.0 + 2.0), 1e-12);
  torch::nn::Linear other = line(7.0);
  net.load_state({{"weight", other->weight}});
  step(next);
  EXPECT_NEAR(weight_of(net), 7.0 - 0.1 * (0.5 * 3.0 + 2.0), 1e-12);
}

}  // namespace
}  // namespace cohort::step_test
