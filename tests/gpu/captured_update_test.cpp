// Updates that are a part of a captured step: their numbers change from step to step, and come to the same bits as
// those of steps without a graph.
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cohort/cohort.h"
#include "tests/gpu/cards.h"
#include "tests/optimizer/rule_cases.h"

namespace cohort::captured_update_test {
namespace {

using namespace gpu;

using testing_support::Case;

// Falls, and is 0 in one step.
Schedule uneven() {
  return {"uneven", [](int64_t step) { return step == 4 ? 0.0 : 0.1 / (1.0 + static_cast<double>(step)); }};
}

struct Training {
  Strategy strategy;
  std::vector<Mirrored<torch::nn::Linear>> layers;
  std::vector<MirroredOptimizer> optimizers;
};

struct Program {
  std::vector<Optimizer> rules;  // each of a layer
  std::function<void(const Training&, Replica&, const torch::Tensor& x)> step;
  std::function<void(const Training&, int64_t step)> between = [](const Training&, int64_t) {};
  std::vector<int64_t> steps_with_an_infinity = {};
  int64_t steps = 9;
  torch::ScalarType dtype = torch::kFloat;  // of the parameters
};

struct Outcome {
  torch::Tensor numbers;  // of the layers, all slots and counts
  int64_t calls = 0;
  int64_t works = 0;     // of the last step
  int64_t segments = 0;  // the same
  int64_t waits = 0;     // of the last three steps
};

Outcome outcome_of(const Program& program, bool captured) {
  torch::manual_seed(5);
  MirroredStrategy strategy({.devices = on_cards(1)});
  Training training{strategy, {}, {}};
  for (const Optimizer& rule : program.rules) {
    training.layers.push_back(strategy.mirror([&] {
      torch::nn::Linear layer(3, 2);
      layer->to(program.dtype);
      return layer;
    }));
    training.optimizers.push_back(strategy.optimizer(training.layers.back(), rule));
    training.optimizers.back().set_learning_rate(uneven());
  }
  Outcome outcome;
  const auto step = function(
      [&](Replica& replica, const torch::Tensor& x) {
        ++outcome.calls;
        program.step(training, replica, x);
      },
      {.name = "step", .jit_compile = captured});
  for (int64_t i = 0; i < program.steps; ++i) {
    torch::Tensor x = torch::sin(torch::arange(12, torch::kFloat) * static_cast<double>(i + 1)).view({4, 3});
    for (const int64_t each : program.steps_with_an_infinity) {
      if (each == i) x[1][1] = std::numeric_limits<float>::infinity();
    }
    x = x.to(find_logical_device(on_cards(1)[0]).torch_device);
    if (i == program.steps - 3) outcome.waits = -synchronisations();
    outcome.works = -works_given();
    outcome.segments = -segments_given();
    strategy.run([&](Replica& replica) { step(replica, x); });
    outcome.works += works_given();
    outcome.segments += segments_given();
    program.between(training, i);
  }
  outcome.waits += synchronisations();
  std::vector<torch::Tensor> all;
  for (std::size_t i = 0; i < training.layers.size(); ++i) {
    for (const torch::Tensor& each : training.layers[i].copies().front()->parameters()) all.push_back(each.detach());
    for (const auto& [name, tensor] : training.optimizers[i].state()) all.push_back(tensor);
  }
  for (torch::Tensor& each : all) each = each.detach().cpu().to(torch::kDouble).reshape({-1});
  outcome.numbers = torch::cat(all);
  return outcome;
}

torch::Tensor loss_of(const Training& training, std::size_t layer, Replica& replica, const torch::Tensor& x) {
  auto own = training.layers[layer][replica];
  return own->forward(x.to(own->weight.scalar_type())).to(torch::kFloat).square().mean();
}

void minimize(const Training& training, Replica& replica, const torch::Tensor& x) {
  training.optimizers.front()[replica].minimize(loss_of(training, 0, replica, x));
}

// Returns what a captured run has done, which has to come to the numbers of one without graphs: to their bits on the
// stand-in; on a card algorithms may differ.
Outcome expect_same(const Program& program, const std::string& name) {
  const Outcome as_it_is = outcome_of(program, false);
  const Outcome captured = outcome_of(program, true);
  const bool same = stands_in() ? torch::equal(captured.numbers, as_it_is.numbers)
                                : torch::allclose(captured.numbers, as_it_is.numbers, 1e-5, 1e-6);
  EXPECT_TRUE(same) << name << ": the numbers differ by "
                    << (captured.numbers - as_it_is.numbers).abs().max().item<double>();
  EXPECT_TRUE(as_it_is.numbers.isfinite().all().item<bool>()) << name;
  EXPECT_EQ(captured.calls, 3) << name;
  EXPECT_EQ(captured.waits, as_it_is.waits) << name;
  return captured;
}

void expect_segments(const Outcome& captured, int64_t wanted, const std::string& name) {
  if (stands_in()) {
    EXPECT_EQ(captured.segments, wanted) << name;
  }
}

TEST(CapturedUpdate, HasTheBitsOfEveryRule) {
  COHORT_NEEDS_CARDS(1);
  for (const Case& each : testing_support::all_cases()) {
    const Outcome captured = expect_same({.rules = {each.optimizer}, .step = minimize}, each.name);
    expect_segments(captured, 1, each.name);
  }
}

const GradientOptions kScaled{.global_clipnorm = 0.5, .loss_scale = LossScale{.initial_scale = 64, .growth_steps = 2}};

// The host does not know whether the last step has updated when it begins the next one.
TEST(CapturedUpdate, LeavesOutStepsThatAreNotFinite) {
  COHORT_NEEDS_CARDS(1);
  const EmaOptions ema{.use_ema = true, .ema_momentum = 0.9, .ema_overwrite_frequency = 3};
  for (const Optimizer& rule : {AdamW({.gradient = kScaled, .ema = ema}), Nadam({.gradient = kScaled}),
                                SGD({.momentum = 0.9, .gradient = kScaled, .formulation = Formulation::kTorch})}) {
    const Program program{.rules = {rule}, .step = minimize, .steps_with_an_infinity = {0, 4, 7, 8, 12}, .steps = 16};
    const Outcome captured = expect_same(program, rule.name());
    expect_segments(captured, 1, rule.name());
  }
}

// Kernels of layers take the numbers of those with weight decay and of those without it at once; kernels of halves read
// the same numbers. FTRL divides by a rate that is 0 in one step.
TEST(CapturedUpdate, HasTheBitsOfLayersAndHalves) {
  COHORT_NEEDS_CARDS(1);
  const EmaOptions ema{.use_ema = true, .ema_momentum = 0.9, .ema_overwrite_frequency = 3};
  const std::vector<std::string> bias{"bias"};
  const std::vector<Optimizer> rules{
      LAMB({.weight_decay = 0.1, .exclude_from_weight_decay = bias, .gradient = kScaled, .ema = ema}),
      LARS({.nesterov = true, .weight_decay = 0.1, .exclude_from_weight_decay = bias, .gradient = {.clipnorm = 0.1}}),
      AdamW({.weight_decay = 0.1, .exclude_from_weight_decay = bias, .ema = ema}),
      Ftrl({.weight_decay = 0.1, .ema = ema}),
  };
  for (const Optimizer& rule : rules) {
    for (const torch::ScalarType dtype : {torch::kFloat, torch::kBFloat16}) {
      const std::string name = rule.name() + " on " + c10::toString(dtype);
      const Program program{.rules = {rule}, .step = minimize, .steps_with_an_infinity = {}, .dtype = dtype};
      expect_segments(expect_same(program, name), 1, name);
    }
  }
}

// A step behind another one of the same optimizer begins a segment, because it has other numbers.
TEST(CapturedUpdate, MayComeSeveralTimesInAFunction) {
  COHORT_NEEDS_CARDS(1);
  const auto thrice = [](const Training& training, Replica& replica, const torch::Tensor& x) {
    minimize(training, replica, x);
    training.optimizers.back()[replica].minimize(loss_of(training, 1, replica, x * 0.5));
    minimize(training, replica, x + 1);
  };
  const Program scaled{
      .rules = {Adam({.gradient = kScaled}), Adagrad({})}, .step = thrice, .steps_with_an_infinity = {}, .steps = 12};
  const Outcome captured = expect_same(scaled, "with a loss scale");
  expect_segments(captured, 2, "with a loss scale");
  expect_same({.rules = {Adam({}), Lion({})}, .step = thrice}, "without one");
}

TEST(CapturedUpdate, TakesGradientsOfTheProgram) {
  COHORT_NEEDS_CARDS(1);
  const auto halved = [](const Training& training, Replica& replica, const torch::Tensor& x) {
    auto optimizer = training.optimizers.front()[replica];
    std::vector<torch::Tensor> gradients = optimizer.gradients(loss_of(training, 0, replica, x));
    for (torch::Tensor& each : gradients) each.mul_(0.5);
    optimizer.apply_gradients(gradients);
  };
  const Outcome captured = expect_same(
      {.rules = {Adam({.gradient = kScaled})}, .step = halved, .steps_with_an_infinity = {5}, .steps = 12}, "halved");
  expect_segments(captured, 1, "halved");
}

// What is set between steps has its effect in the next one, without another capture.
TEST(CapturedUpdate, FollowsWhatIsSetBetweenSteps) {
  COHORT_NEEDS_CARDS(1);
  const auto set = [](const Training& training, int64_t step) {
    const MirroredOptimizer& optimizer = training.optimizers.front();
    if (step == 5) optimizer.set_learning_rate(0.25);
    if (step == 6) optimizer.load_state(optimizer.state());
    if (step == 8) (void)optimizer.iterations();
  };
  expect_same({.rules = {Adam({.gradient = kScaled})},
               .step = minimize,
               .between = set,
               .steps_with_an_infinity = {6, 8},
               .steps = 12},
              "set");
}

// A step is one segment, the numbers and what surrounds a function.
TEST(CapturedUpdate, GivesTheCardLittle) {
  if (!stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for";
  const Program program{.rules = {AdamW({.gradient = kScaled})}, .step = minimize};
  const Outcome as_it_is = outcome_of(program, false);
  const Outcome captured = outcome_of(program, true);
  EXPECT_LE(captured.works, 8);
  EXPECT_GE(as_it_is.works, 5 * captured.works);
}

}  // namespace
}  // namespace cohort::captured_update_test
