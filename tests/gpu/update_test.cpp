// Updates on cards that training_test does not have: rules that need norms of parameters where replicas share states or
// parameters are cut, and parameters of half precision.
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "cohort/cohort.h"
#include "cohort/parallel/mesh_strategy.h"
#include "tests/equivalence/mesh_runs.h"
#include "tests/equivalence/runs.h"
#include "tests/gpu/cards.h"

namespace cohort::update_test {
namespace {

using namespace gpu;

std::vector<std::pair<const char*, Optimizer>> rules_by_norms() {
  GradientOptions each, all;
  each.clipnorm = 0.1;
  all.global_clipnorm = 0.2;
  all.loss_scale = LossScale{};
  const EmaOptions ema{.use_ema = true, .ema_momentum = 0.9, .ema_overwrite_frequency = 7};
  return {
      {"lamb", LAMB({.learning_rate = 0.01, .weight_decay = 0.01, .exclude_from_weight_decay = {"1d"}, .ema = ema})},
      {"lamb_clipped", LAMB({.learning_rate = 0.01, .gradient = each, .formulation = Formulation::kTorch})},
      {"lars", LARS({.learning_rate = 0.5, .weight_decay = 0.01, .gradient = all})},
  };
}

// What LAMB and LARS leave on the CPU, which training_test asks for, too, but for these options.
TEST(CardUpdates, NormsAreThoseOfWholeParametersWhereStatesAreShared) {
  COHORT_NEEDS_PLACES(2);
  const std::vector<std::string> devices = on_cards(2);
  const auto make = [] {
    return torch::nn::Sequential(torch::nn::Linear(equivalence::kFeatures, 31), torch::nn::Tanh(),
                                 torch::nn::Linear(31, equivalence::kClasses));
  };
  for (const auto& [name, rule] : rules_by_norms()) {
    const torch::Tensor wanted = equivalence::weights_after(OneDeviceStrategy("/CPU:0"), rule, {}, make);
    for (const int stage : {0, 1, 2, 3}) {
      ShardingOptions sharding{.stage = stage};
      if (stage == 3) sharding.min_unit_bytes = 0;
      const MirroredStrategy strategy({.devices = devices, .sharding = sharding});
      const torch::Tensor got = stage == 3 ? equivalence::copies_after(strategy, rule, {}, make)[0]
                                           : equivalence::weights_after(strategy, rule, {}, make);
      EXPECT_LT(equivalence::distance(got, wanted), 1e-9) << name << ", stage " << stage;
    }
  }
}

TEST(CardUpdates, NormsAreThoseOfWholeParametersWhereTheseAreCut) {
  COHORT_NEEDS_PLACES(2);
  using namespace equivalence;
  using namespace equivalence::mesh_runs;
  const std::vector<std::string> devices = on_cards(2);
  const Net net = nets()[3];
  for (const auto& [name, rule] : rules_by_norms()) {
    SCOPED_TRACE(name);
    const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net, rule);
    const MeshStrategy strategy(DeviceMesh({1, 2}, {"batch", "model"}, devices), {.layout = net.layout});
    expect_like(under(strategy, net, rule), wanted);
  }
}

// A line, whose parameters are in half precision, is fitted to points.
struct Line : torch::nn::Module {
  Line()
      : weight(register_parameter("weight", torch::full({300}, 0.5))),
        bias(register_parameter("bias", torch::zeros({1}))) {}
  torch::Tensor weight, bias;
};

std::vector<torch::Tensor> fitted(const Strategy& strategy, const Optimizer& rule, torch::ScalarType dtype) {
  const auto scope = strategy.scope();
  auto line = strategy.mirror([&] {
    auto made = std::make_shared<Line>();
    made->to(dtype);
    return made;
  });
  auto optimizer = strategy.optimizer(line, rule);
  const torch::Tensor x = torch::linspace(-1, 1, 300);
  for (int step = 0; step < 12; ++step) {
    strategy.run([&](Replica& replica) {
      const Line& own = *line[replica];
      const torch::Tensor there = x.to(own.weight.options().requires_grad(false), /*non_blocking=*/true);
      const torch::Tensor far = own.weight * there + own.bias - there * 2 - 1;
      optimizer[replica].minimize(replica.global_mean(far.to(torch::kFloat).square()));
    });
  }
  std::vector<torch::Tensor> list;
  for (const torch::Tensor& parameter : line.copies()[0]->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), dtype);
    list.push_back(parameter.detach().cpu().to(torch::kFloat));
  }
  return list;
}

TEST(CardUpdates, HalvesFollowFloat32) {
  COHORT_NEEDS_PLACES(2);
  GradientOptions clipped;
  clipped.global_clipnorm = 0.5;
  clipped.loss_scale = LossScale{};
  const EmaOptions ema{.use_ema = true};
  const std::vector<std::pair<const char*, Optimizer>> rules = {
      {"momentum", SGD({.learning_rate = 0.1, .momentum = 0.9})},
      {"adamw", AdamW({.learning_rate = 0.05, .gradient = clipped, .ema = ema})},
      {"lamb", LAMB({.learning_rate = 0.05, .weight_decay = 0.01})},
      {"lars", LARS({.learning_rate = 1.0, .trust_coefficient = 0.05})},
      {"adafactor", Adafactor({.learning_rate = 0.05})},
  };
  for (const auto& [name, rule] : rules) {
    const auto wanted = fitted(MirroredStrategy({.devices = on_cards(2)}), rule, torch::kFloat);
    for (const int stage : {0, 2}) {
      const MirroredStrategy strategy({.devices = on_cards(2), .sharding = {.stage = stage}});
      const auto got = fitted(strategy, rule, torch::kBFloat16);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(torch::allclose(got[i], wanted[i], 0.05, 0.05)) << name << ", stage " << stage;
      }
      EXPECT_FALSE(torch::allclose(got[0], torch::full_like(got[0], 0.5), 0, 0.01)) << name << ": never updated";
    }
  }
}

// On cards and in the host's memory, in all stages: with the gradients of a sum that does not depend on the parameters
// the masters are the parameters of float32, and the parameters their roundings.
TEST(CardUpdates, MastersAreTheParametersOfFloat32) {
  COHORT_NEEDS_PLACES(2);
  const EmaOptions ema{.use_ema = true, .ema_momentum = 0.9, .ema_overwrite_frequency = 3};
  const std::vector<Optimizer> rules = {SGD({.learning_rate = 1e-3, .momentum = 0.9}), AdamW({.ema = ema}),
                                        LAMB({.weight_decay = 0.01, .ema = ema}), LARS({}), Adafactor({.ema = ema})};
  const auto after = [](const ShardingOptions& sharding, const Optimizer& rule, torch::ScalarType dtype) {
    const MirroredStrategy strategy({.devices = on_cards(2), .sharding = sharding});
    auto line = strategy.mirror([&] {
      auto made = std::make_shared<Line>();
      made->to(dtype);
      return made;
    });
    auto optimizer = strategy.optimizer(line, rule);
    for (int step = 0; step < 4; ++step) {
      strategy.run([&](Replica& replica) {
        std::vector<torch::Tensor> gradients;
        for (const int64_t size : {300, 1}) {
          const torch::Tensor sum = torch::cos(torch::arange(size) * 0.1 + step).to(torch::kBFloat16).to(dtype);
          gradients.push_back(sum.to(replica.device()));
        }
        optimizer[replica].apply_gradients(std::move(gradients), /*reduced=*/true);
      });
    }
    auto list = optimizer.state();
    for (const auto& [name, tensor] : line.state()) list.emplace_back(name, tensor.detach().cpu());
    return std::map<std::string, torch::Tensor>(list.begin(), list.end());
  };
  for (const Optimizer& rule : rules) {
    const auto wanted = after({}, rule, torch::kFloat);
    for (const int stage : {0, 1, 2, 3}) {
      for (const bool offloads : {false, true}) {
        if (offloads && stage == 0) continue;
        const auto got = after({.stage = stage, .offload_states = offloads}, rule, torch::kBFloat16);
        for (const char* name : {"weight", "bias"}) {
          const torch::Tensor master = got.at(std::string(name) + "/master").cpu();
          const torch::Tensor& wide = wanted.at(name);
          const double tolerance = offloads && rule.rule().one_by_one() ? 1e-6 : 0.0;  // norms in another order
          EXPECT_TRUE(torch::allclose(master, wide, 0, tolerance)) << rule.name() << ", stage " << stage << offloads;
          EXPECT_TRUE(torch::equal(got.at(name), master.to(torch::kBFloat16))) << rule.name() << ", stage " << stage;
        }
      }
    }
  }
}

// A module of which each card has some classes.
class Classes final : public torch::nn::Module, public DividedModule {
 public:
  Classes() { weight_ = register_parameter("weight", torch::ones({4, 3})); }
  void divide(const std::map<std::string, ParameterAxes>& axes, const Topology& /*topology*/) override {
    axis_ = axes.at("weight")[0];
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return parts_along(torch::linear(enter_axis(x, axis_), weight_), axis_, -1);
  }

 private:
  torch::Tensor weight_;
  std::string axis_;
};

// As one device does; a card that has refused something does nothing more.
TEST(CardClasses, ATargetThatIsNoClassIsRefused) {
  COHORT_NEEDS_PLACES(2);
  if (!stands_in()) GTEST_SKIP() << "a real card could not be used any more";
  const MeshStrategy strategy(DeviceMesh({1, 2}, {"batch", "model"}, on_cards(2)),
                              {.layout = {{"weight", {"model", ""}}}});
  const auto net = strategy.mirror([] { return std::make_shared<Classes>(); });
  const auto loss_of = [&](int64_t target) {
    return strategy.run([&](Replica& replica) {
      const auto on_card = torch::TensorOptions(replica.device());
      const torch::Tensor logits = net[replica]->forward(torch::ones({1, 3}, on_card));
      return torch::nll_loss(logits.log_softmax(-1), torch::full({1}, target, on_card.dtype(torch::kLong)));
    });
  };
  EXPECT_NEAR(loss_of(3)[0].item<float>(), std::log(4.0), 1e-6);
  EXPECT_EQ(loss_of(-100)[0].cpu().isnan().item<bool>(), true) << "it does not count";
  for (const int64_t target : {4, -1}) EXPECT_THROW(loss_of(target), c10::Error) << target;
}

}  // namespace
}  // namespace cohort::update_test
