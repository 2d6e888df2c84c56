// Training steps of one's own and a model's as graphs of their card: the same numbers as without, from a graph for each
// signature, with what changes from step to step (arguments, rate, scale of the loss, random numbers) being each
// step's.
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cohort.h"
#include "tests/gpu/cards.h"
#include "tests/gpu/programs.h"
#include "tests/support/errors.h"
#include "wings/function/device/graph_capture.h"

namespace cohort::graph_training_test {
namespace {

using namespace gpu;

using cohort::testing::expect_error;

// Bits on the stand-in; on a card algorithms may differ.
::testing::AssertionResult same(const torch::Tensor& one, const torch::Tensor& other) {
  const torch::Tensor a = one.detach().cpu();
  const torch::Tensor b = other.detach().cpu();
  if (stands_in() ? torch::equal(a, b) : torch::allclose(a, b, 1e-5, 1e-6)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the numbers differ by " << (a - b).abs().max().item<double>();
}

// ---- Training steps of one's own.

struct Trained {
  torch::Tensor weights;
  torch::Tensor losses;
  int64_t forwards = 0;
  int64_t iterations = 0;
  // Of the steps of the last epoch.
  int64_t waits = 0;
  int64_t segments = 0;
};

Schedule falling() {
  return ExponentialDecay({.initial_learning_rate = 0.05, .decay_steps = 3, .decay_rate = 0.7});
}

std::vector<Program> programs() {
  const auto one = [] { return on(on_cards(1)); };
  const auto two = [] { return on(on_cards(2)); };
  // With the batch that has an infinity a step is left out, and the scale is halved; it doubles every fourth step.
  const GradientOptions all{.global_clipnorm = 0.5, .loss_scale = LossScale{.initial_scale = 64, .growth_steps = 4}};
  return {
      {"sgd", 1, one, SGD({.learning_rate = falling(), .momentum = 0.9}), 1},
      {"with_everything", 1, one, AdamW({.learning_rate = falling(), .gradient = all, .ema = {.use_ema = true}}), 1},
      {"clipped_by_norm", 1, one, Adam({.learning_rate = falling(), .gradient = {.clipnorm = 0.1}}), 1},
      {"accumulated", 1, one, Adam({.learning_rate = falling(), .gradient = {.gradient_accumulation_steps = 3}}), 1},
      {"lamb", 1, one, LAMB({.learning_rate = falling()}), 1},
      {"two_cards", 2, two, AdamW({.learning_rate = falling(), .gradient = all}), 4},
      {"two_replicas_of_one_card", 1, [] { return on(parts_of_one_card()); }, Adam({.learning_rate = falling()}), 2},
      {"sharded_1", 2, [] { return on(on_cards(2), {.sharding = {.stage = 1}}); }, Adam({.learning_rate = falling()}),
       2},
      {"central_storage", 1, [] { return CentralStorageStrategy({.compute_devices = parts_of_one_card()}); },
       SGD({.learning_rate = falling(), .momentum = 0.9}), 2},
  };
}

Trained train(const Program& program, std::optional<bool> jit_compile) {
  torch::manual_seed(7);
  const Strategy strategy = program.strategy();
  strategy.set_seed(7);
  const auto scope = strategy.scope();
  const auto net = strategy.mirror([] {
    return torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8), torch::nn::Tanh(),
                                 torch::nn::Linear(8, 1));
  });
  const auto optimizer = strategy.optimizer(net, program.rule);
  torch::Tensor x = torch::randn({44, 6});
  const torch::Tensor y = x.sum(1, true);
  if (program.rule.gradient().loss_scale) x[11][2] = std::numeric_limits<float>::infinity();
  const DistributedDataset data = strategy.distribute(Dataset::from_tensor_slices(x, y).batch(8));
  std::atomic<int64_t> forwards = 0;
  const auto step = function(
      [&](Replica& replica, const Example& share) {
        ++forwards;
        const torch::Tensor out = net[replica]->forward(share.x);
        const torch::Tensor kept = torch::empty_like(out).bernoulli_(0.75, replica.generator());
        const torch::Tensor loss = replica.global_mean((out * kept - share.y).square());
        optimizer[replica].minimize(loss);
        return loss.detach();
      },
      {.name = "step", .jit_compile = jit_compile});
  Trained run;
  std::vector<torch::Tensor> losses;
  int64_t before = 0;
  int64_t segments_before = 0;
  for (int epoch = 0; epoch < 4; ++epoch) {
    if (epoch == 3) before = synchronisations();
    if (epoch == 3) segments_before = segments_given();
    for (const GlobalBatch& batch : data) {
      for (const torch::Tensor& loss : strategy.run(step, batch)) losses.push_back(loss);
    }
  }
  run.waits = synchronisations() - before;
  run.segments = segments_given() - segments_before;
  for (torch::Tensor& loss : losses) loss = loss.cpu();
  run.losses = torch::nan_to_num(torch::stack(losses));
  std::vector<torch::Tensor> weights;
  for (const auto& copy : net.copies()) {
    for (const torch::Tensor& each : copy->parameters()) weights.push_back(each.detach().cpu().reshape({-1}));
    for (const torch::Tensor& each : copy->buffers()) {
      weights.push_back(torch::nan_to_num(each.detach().cpu().to(torch::kFloat).reshape({-1})));
    }
  }
  run.weights = torch::cat(weights);
  run.forwards = forwards;
  run.iterations = optimizer.iterations();
  return run;
}

class Captured : public ::testing::TestWithParam<Program> {};

// 24 steps, of which every sixth has a short batch.
TEST_P(Captured, StepsComeToTheSameNumbers) {
  COHORT_NEEDS_PLACES(GetParam().cards);
  const Trained as_it_is = train(GetParam(), std::nullopt);
  const Trained captured = train(GetParam(), true);
  EXPECT_TRUE(same(captured.weights, as_it_is.weights));
  EXPECT_TRUE(same(captured.losses, as_it_is.losses));
  EXPECT_EQ(captured.iterations, as_it_is.iterations);
  EXPECT_EQ(captured.waits, as_it_is.waits);
  EXPECT_EQ(captured.forwards * 4, as_it_is.forwards) << "three calls of each of the two shapes";
  if (stands_in()) {
    EXPECT_EQ(captured.segments, 6 * GetParam().segments);
  }
  EXPECT_TRUE(as_it_is.weights.isfinite().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(All, Captured, ::testing::ValuesIn(programs()),
                         [](const auto& info) { return info.param.name; });

TEST(CapturedStep, RefusesCollectives) {
  COHORT_NEEDS_PLACES(2);
  const Strategy strategy = on(on_cards(2));
  const auto sums =
      function([](Replica& replica, const torch::Tensor& x) { return replica.all_reduce(ReduceOp::kSum, x); },
               {.name = "sums", .jit_compile = true});
  const auto call = [&] {
    strategy.run([&](Replica& replica) { return sums(replica, torch::ones({2}, replica.device())); });
  };
  call();
  call();
  expect_error<NotCapturable>(call, "sums cannot be captured as a graph");
}

TEST(CapturedStep, RefusesGradientsThatLeaveDuringBackward) {
  COHORT_NEEDS_PLACES(2);
  const auto shared = [] { return on(on_cards(2), {.sharding = {.stage = 2}}); };
  expect_error<NotCapturable>([&] { train({"", 2, shared, SGD({}), 0}, true); }, "sharding stages 2 and 3");
}

// ---- A model's steps.

struct Fitted {
  History history;
  Logs evaluated;
  torch::Tensor predicted;
  torch::Tensor weights;
};

Fitted fitted(std::optional<bool> jit_compile, int cards) {
  torch::manual_seed(3);
  const Strategy strategy = on(on_cards(cards));
  strategy.set_seed(3);
  const auto scope = strategy.scope();
  Sequential model({Conv2D(4, 3, Activation::kRelu), BatchNormalization(), Flatten(), Dropout(0.2), Dense(3)});
  model.build({1, 6, 6});
  NamedTensors weights = model.weights();
  for (auto& [name, tensor] : weights) {
    if (!tensor.is_floating_point() || name.find("batch_norm") != std::string::npos) continue;
    tensor = torch::cos(torch::arange(tensor.numel(), torch::kFloat)).view(tensor.sizes()) / 3;
  }
  model.set_weights(weights);
  model.compile({.optimizer = Adam({.learning_rate = falling(), .gradient = {.loss_scale = LossScale{}}}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .weighted_metrics = {"accuracy"},
                 .jit_compile = jit_compile});
  const torch::Tensor y = torch::randint(3, {52}, torch::kLong);
  const Dataset data = Dataset::from_tensor_slices(
      {.x = torch::randn({52, 1, 6, 6}) + y.view({-1, 1, 1, 1}), .y = y, .weight = torch::rand({52})});
  Fitted result;
  result.history = model.fit(data.shuffle(20, {.seed = 4}).batch(8),
                             {.epochs = 4, .validation_data = data.take(20).batch(8), .verbose = Verbose::kSilent});
  result.evaluated = model.evaluate(data.batch(8), {.verbose = Verbose::kSilent});
  result.predicted = model.predict(data.batch(8)).cpu();
  std::vector<torch::Tensor> all;
  for (const auto& [name, tensor] : model.weights()) all.push_back(tensor.cpu().to(torch::kFloat).reshape({-1}));
  result.weights = torch::cat(all);
  return result;
}

TEST(CapturedModel, ComesToTheSameNumbers) {
  COHORT_NEEDS_CARDS(1);
  for (const int count : {1, std::min(2, cards())}) {
    Fitted as_it_is = fitted(std::nullopt, count);
    Fitted captured = fitted(true, count);
    ASSERT_EQ(captured.history.names(), as_it_is.history.names());
    for (const std::string& name : as_it_is.history.names()) {
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_NEAR(captured.history[name][i], as_it_is.history[name][i], 1e-6) << name;
    }
    for (const auto& [name, value] : as_it_is.evaluated) EXPECT_NEAR(captured.evaluated[name], value, 1e-6) << name;
    EXPECT_TRUE(same(captured.predicted, as_it_is.predicted));
    EXPECT_TRUE(same(captured.weights, as_it_is.weights));
  }
}

TEST(CapturedModel, NamesWhatCannotBeCaptured) {
  COHORT_NEEDS_CARDS(1);
  const Strategy strategy = on(on_cards(1));
  const auto scope = strategy.scope();
  Sequential model({Lambda([](const torch::Tensor& x) { return x * x.abs().max().item<double>(); }), Dense(1)});
  model.compile({.optimizer = SGD({}), .loss = MeanSquaredError(), .jit_compile = true});
  const Dataset data = Dataset::from_tensor_slices(torch::ones({12, 2}), torch::ones({12, 1})).batch(4);
  expect_error<NotCapturable>([&] { (void)model.fit(data, {.verbose = Verbose::kSilent}); },
                              "train_step cannot be captured as a graph of " +
                                  find_logical_device(on_cards(1)[0]).torch_device.str() + ": aten::item");
}

}  // namespace
}  // namespace cohort::graph_training_test
