// Parameters of half precision that are roundings of float32 masters: the updates of float32, what they add up to, and
// that masters go where slots go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "base/access.h"
#include "checkpoint/reader.h"
#include "cohort/checkpoint.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "step/step.h"
#include "tests/optimizer/rule_cases.h"
#include "tests/optimizer/rule_runs.h"
#include "tests/support/files.h"

namespace cohort::master_weights_test {
namespace {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// A vector, a matrix and a scalar, which are there to be updated alone.
struct NumbersImpl : torch::nn::Module {
  NumbersImpl(int64_t length, torch::ScalarType dtype)
      : weight(register_parameter("weight", filled({length / 20, 20}, dtype))),
        vector(register_parameter("vector", filled({length}, dtype))),
        scalar(register_parameter("scalar", torch::full({}, 0.75, dtype))) {}
  static torch::Tensor filled(torch::IntArrayRef sizes, torch::ScalarType dtype) {
    return testing_support::numbers(3, sizes, torch::kFloat).to(torch::kBFloat16).to(dtype);
  }
  torch::Tensor weight, vector, scalar;
};
TORCH_MODULE(Numbers);

struct Training {
  Training(Strategy own, const Optimizer& rule, torch::ScalarType dtype, int64_t length = 2500)
      : strategy(std::move(own)),
        net(strategy.mirror([&] { return Numbers(length, dtype); })),
        optimizer(strategy.optimizer(net, rule)) {}

  void apply(const std::vector<torch::Tensor>& gradients) {
    const auto dtype = net.copies()[0]->parameters()[0].scalar_type();
    strategy.run([&](Replica& replica) {
      std::vector<torch::Tensor> own;
      for (const torch::Tensor& each : gradients) own.push_back(each.to(dtype, /*non_blocking=*/false, /*copy=*/true));
      optimizer[replica].apply_gradients(std::move(own), /*reduced=*/true);
    });
  }
  // Steps whose gradients depend on the parameters as they are, and are numbers of bfloat16.
  void steps(int first, int last) {
    for (int step = first; step < last; ++step) {
      std::vector<torch::Tensor> gradients;
      for (const auto& [name, value] : weights())
        gradients.push_back(torch::sin(value.to(torch::kFloat) * 3 + step).to(torch::kBFloat16));
      apply(gradients);
    }
  }
  NamedTensors weights() const {
    NamedTensors list = net.state();
    for (auto& [name, tensor] : list) tensor = tensor.detach().clone();
    return list;
  }
  std::map<std::string, torch::Tensor> state() const {
    const NamedTensors list = optimizer.state();
    return {list.begin(), list.end()};
  }

  Strategy strategy;
  Mirrored<Numbers> net;
  MirroredOptimizer optimizer;
};

Strategy one_cpu() {
  return OneDeviceStrategy("/CPU:0");
}
Strategy in_stage(int stage) {
  ShardingOptions sharding{.stage = stage};
  if (stage == 3) sharding.min_unit_bytes = 0;
  return MirroredStrategy({.devices = cpu_devices(2), .sharding = sharding});
}

void expect_same(const NamedTensors& got, const NamedTensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, wanted[i].first);
    EXPECT_TRUE(torch::equal(got[i].second, wanted[i].second)) << got[i].first;
  }
}

// To the bit: with the gradients of the rounded parameters. Averages replace the parameters in step 7. Norms of LAMB
// and LARS are added up chunk by chunk in float32's own update, so that these have one.
TEST(MasterWeights, AreUpdatedAsFloat32IsByEveryRule) {
  for (const testing_support::Case& each : testing_support::all_cases()) {
    for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
      SCOPED_TRACE(each.name + " on " + c10::toString(dtype));
      const int64_t length = each.optimizer.rule().needs_norms() ? 1000 : 2500;
      Training half(one_cpu(), each.optimizer, dtype, length);
      Training wide(one_cpu(), each.optimizer, torch::kFloat, length);
      for (int step = 0; step < 8; ++step) {
        std::vector<torch::Tensor> gradients;
        for (const auto& [name, value] : half.weights()) {
          gradients.push_back(torch::sin(value.to(torch::kFloat) * 3 + step).to(dtype));
        }
        half.apply(gradients);
        wide.apply(gradients);
        NamedTensors rounded = wide.weights();
        for (auto& [name, value] : rounded) value = value.to(dtype);
        expect_same(half.weights(), rounded);
      }
      auto state = half.state();
      for (const auto& [name, value] : wide.weights()) EXPECT_TRUE(state.at(name + "/master").equal(value)) << name;
      for (const auto& [name, value] : wide.state()) EXPECT_TRUE(state.at(name).equal(value)) << name;
    }
  }
}

TEST(MasterWeights, AddUpUpdatesThatRoundingWouldLose) {
  for (const bool kept : {true, false}) {
    Training run(one_cpu(), SGD({.learning_rate = 1e-3, .master_weights = kept}), torch::kBFloat16);
    for (int step = 0; step < 100; ++step) run.apply({torch::ones({125, 20}), torch::ones({2500}), torch::ones({})});
    const auto got = run.net.copies()[0]->parameters()[2].item<float>();
    if (kept) {
      EXPECT_NEAR(got, 0.65, 0.002);
    } else {
      EXPECT_EQ(got, 0.75F);
    }
    EXPECT_EQ(run.state().contains("scalar/master"), kept);
  }
}

// Clipping by norms, whose factors are numbers of float64 that two ways add up, and a scaled loss.
TEST(MasterWeights, TakeGradientsThatAreScaledInFloat32) {
  const std::vector<GradientOptions> all{
      {.clipnorm = 0.3}, {.global_clipnorm = 0.3}, {.global_clipnorm = 0.3, .loss_scale = LossScale{}}, {.l2 = 0.1}};
  for (const GradientOptions& gradient : all) {
    for (const Optimizer& rule : {AdamW({.gradient = gradient}), LAMB({.gradient = gradient})}) {
      Training half(one_cpu(), rule, torch::kBFloat16), wide(one_cpu(), rule, torch::kFloat);
      for (int step = 0; step < 3; ++step) {
        std::vector<torch::Tensor> gradients;
        for (const auto& [name, value] : half.weights()) gradients.push_back(torch::cos(value + step));
        half.apply(gradients);
        wide.apply(gradients);
      }
      const auto state = half.state();
      for (const auto& [name, value] : wide.weights()) {
        EXPECT_TRUE(torch::allclose(state.at(name + "/master"), value, 1e-6, 1e-7)) << rule.name() << ", " << name;
      }
    }
  }
}

TEST(MasterWeights, AreSharedAsSlotsAre) {
  const EmaOptions ema{.use_ema = true, .ema_momentum = 0.9, .ema_overwrite_frequency = 4};
  for (const Optimizer& rule : {AdamW({.ema = ema}), LARS({.ema = ema}), Adafactor({.ema = ema})}) {
    Training whole(in_stage(0), rule, torch::kBFloat16);
    whole.steps(0, 6);
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(c10::str(rule.name(), ", stage ", stage));
      Training shared(in_stage(stage), rule, torch::kBFloat16);
      shared.steps(0, 6);
      expect_same(shared.weights(), whole.weights());
      expect_same(shared.optimizer.state(), whole.optimizer.state());
      EXPECT_LT(shared.optimizer.state_bytes().slots, 0.6 * static_cast<double>(whole.optimizer.state_bytes().slots));
    }
  }
}

// From a checkpoint on the disk, in any stage: read as a whole and in pieces.
TEST(MasterWeights, GoOnWithTheSameBits) {
  const testing::TemporaryFolder folder;
  const Optimizer rule = Adam({.ema = {.use_ema = true}});
  Training whole(in_stage(0), rule, torch::kBFloat16);
  whole.steps(0, 6);
  for (const int stage : {0, 1, 2, 3}) {
    Training begun(in_stage(stage), rule, torch::kBFloat16);
    begun.steps(0, 3);
    const auto place = folder / c10::str(stage);
    save_checkpoint(place, 3, {.tensors = {{"model", begun.weights()}, {"optimizer", begun.optimizer.state()}}});
    const SavedCheckpoint saved = read_checkpoint(place);
    for (const bool in_pieces : {false, true}) {
      SCOPED_TRACE(c10::str("stage ", stage, in_pieces ? ", in pieces" : ""));
      Training resumed(in_stage((stage + 1) % 4), rule, torch::kBFloat16);
      resumed.net.load_state(saved.data.tensors.at("model"));
      if (in_pieces) {
        Access::step(resumed.optimizer)->state().load_pieces(*CheckpointReader(place).group("optimizer"));
      } else {
        resumed.optimizer.load_state(saved.data.tensors.at("optimizer"));
      }
      resumed.steps(3, 6);
      expect_same(resumed.weights(), whole.weights());
      expect_same(resumed.optimizer.state(), whole.optimizer.state());
    }
  }
}

// A state that was saved without masters, and one with masters for an optimizer that has none.
TEST(MasterWeights, BeginWithTheParametersWhereNoneWereSaved) {
  const Optimizer without = Adam({.master_weights = false});
  Training begun(one_cpu(), without, torch::kBFloat16);
  begun.steps(0, 3);
  const NamedTensors saved = begun.optimizer.state();
  for (const int stage : {0, 1, 3}) {
    SCOPED_TRACE(c10::str("stage ", stage));
    Training with(in_stage(stage), Adam(), torch::kBFloat16);
    with.steps(0, 1);
    with.net.load_state(begun.weights());
    with.optimizer.load_state(saved);
    EXPECT_TRUE(with.state().at("vector/master").eq(0).all().item<bool>());
    with.steps(3, 4);
    Training wide(one_cpu(), Adam(), torch::kFloat);
    NamedTensors weights = begun.weights();
    for (auto& [name, value] : weights) value = value.to(torch::kFloat);
    wide.net.load_state(weights);
    wide.optimizer.load_state(saved);
    wide.steps(3, 4);
    for (const auto& [name, value] : wide.weights()) EXPECT_TRUE(with.state().at(name + "/master").equal(value));
    begun.optimizer.load_state(with.optimizer.state());
    EXPECT_EQ(begun.optimizer.iterations(), 4);
  }
}

TEST(MasterWeights, FollowWhatSomethingElseWrites) {
  for (const int stage : {0, 1, 2}) {
    Training run(in_stage(stage), SGD({.learning_rate = 1e-3}), torch::kBFloat16);
    run.steps(0, 3);
    run.strategy.run([&](Replica& replica) {
      run.net[replica]->vector.data().fill_(0.5);
      run.net[replica]->scalar.data().fill_(INFINITY);
    });
    const torch::Tensor kept = run.state().at("weight/master").clone();
    run.apply({torch::zeros({125, 20}), torch::ones({2500}), torch::ones({})});
    auto state = run.state();
    EXPECT_TRUE(state.at("weight/master").equal(kept));
    EXPECT_TRUE(state.at("vector/master").equal(torch::full({2500}, 0.5F - 1e-3F)));
    EXPECT_EQ(state.at("scalar/master").item<float>(), INFINITY);
  }
}

TEST(MasterWeights, AreForHalfPrecisionAlone) {
  Training run(one_cpu(), SGD(), torch::kFloat);
  run.steps(0, 1);
  EXPECT_FALSE(run.state().contains("vector/master"));
  EXPECT_FALSE(LossScaleOptimizer(SGD({.master_weights = false})).master_weights());
  EXPECT_TRUE(Optimizer("adam").master_weights());
}

}  // namespace
}  // namespace cohort::master_weights_test
