// The steps of a model as functions on XLA's devices: recorded once a signature, with the same bits as steps that are
// recorded each; what cannot be a function is recorded in each step.
#include <atomic>

#include "cohort/cluster/xla_strategy.h"
#include "cohort/schedule.h"
#include "cohort/train.h"
#include "tests/equivalence/runs.h"
#include "tests/support/xla.h"

namespace cohort::equivalence::xla_fit_test {
namespace {

std::atomic<int> forwards = 0;

struct NetOptions {
  bool reads = false;  // forward looks at a value
};

// A module with all that has a state, which counts how often its forward runs.
class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(NetOptions options) : options_(options) {
    register_module("hidden", hidden_);
    register_module("norm", norm_);
    register_module("dropout", dropout_);
    register_module("head", head_);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    ++forwards;
    const torch::Tensor hidden = torch::relu(norm_->forward(hidden_->forward(x)));
    if (options_.reads && hidden.mean().item<double>() > 1e6) return head_->forward(hidden * 2);
    return head_->forward(dropout_->forward(hidden));
  }

 private:
  NetOptions options_;
  torch::nn::Linear hidden_{kFeatures, 16};
  torch::nn::BatchNorm1d norm_{16};
  torch::nn::Dropout dropout_{0.3};
  torch::nn::Linear head_{16, kClasses};
};
TORCH_MODULE(Net);

Dataset batches(int64_t examples) {
  torch::manual_seed(21);
  const Example columns{.x = torch::randn({examples, kFeatures}),
                        .y = torch::randint(kClasses, {examples}, torch::kLong)};
  return Dataset::from_tensor_slices(columns).batch(16);
}

struct FitCase {
  bool run_eagerly = false;
  std::optional<bool> eval_run_eagerly = std::nullopt;
  NetOptions net = {};
  int64_t examples = 84;  // 5 batches of 16, and one of 4
  Optimizer optimizer = Adam({.learning_rate = CosineDecay({.initial_learning_rate = 0.01, .decay_steps = 30}),
                              .gradient = {.global_clipnorm = 0.5},
                              .ema = {.use_ema = true}});
  int64_t steps_per_execution = 1;
};

struct Trained {
  NamedTensors weights;
  std::vector<double> logs;  // the loss and the accuracy of training and validation, by epoch
  torch::Tensor predictions;
  int forwards = 0;  // of training, validation and prediction
};

Trained trained(const Strategy& strategy, const FitCase& options) {
  const auto scope = strategy.scope();
  torch::manual_seed(5);
  strategy.set_seed(5);
  Model model([&] { return Net(options.net); });
  model.compile({.optimizer = options.optimizer,
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"}), SparseTopKCategoricalAccuracy({.k = 2})},
                 .steps_per_execution = options.steps_per_execution,
                 .run_eagerly = options.run_eagerly,
                 .eval_run_eagerly = options.eval_run_eagerly});
  forwards = 0;
  const History history =
      model.fit(batches(options.examples), {.epochs = 3, .validation_data = batches(32), .verbose = Verbose::kSilent});
  Trained result;
  for (const char* log : {"loss", "accuracy", "val_loss", "val_accuracy"}) {
    const std::vector<double> values = history[log];
    result.logs.insert(result.logs.end(), values.begin(), values.end());
  }
  result.predictions = model.predict(batches(48));
  result.forwards = forwards;
  result.weights = model.weights();
  return result;
}

void expect_same_bits(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_TRUE(torch::equal(a.weights[i].second, b.weights[i].second)) << a.weights[i].first;
  }
  EXPECT_EQ(a.logs, b.logs);
  EXPECT_TRUE(torch::equal(a.predictions, b.predictions));
}

class XlaFit : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (cohort::testing::cpu_plugin() == nullptr) GTEST_SKIP() << cohort::testing::kNoCpuPlugin;
    (void)xla();  // before the first backward of the process
  }
  static Strategy xla() {
    return XlaStrategy({.plugin = "cpu",
                        .num_devices = GetParam(),
                        .plugin_options = "cpu_device_count=4",
                        .timeout = std::chrono::minutes(2)});
  }
};

TEST_P(XlaFit, IsRecordedOnceForEachSignature) {
  const Strategy strategy = xla();
  const Optimizer adam = Adam({.learning_rate = CosineDecay({.initial_learning_rate = 0.01, .decay_steps = 30})});
  const Trained function = trained(strategy, {.optimizer = adam});
  const Trained each = trained(strategy, {.run_eagerly = true, .optimizer = adam});
  // Two sizes of a batch in training, one in validation, one in prediction.
  EXPECT_EQ(function.forwards, GetParam() * 4);
  EXPECT_EQ(each.forwards, GetParam() * (3 * (6 + 2) + 3));
  expect_same_bits(function, each);
}

TEST_P(XlaFit, TrainingAloneOrEvaluationAloneIsAFunction) {
  const Strategy strategy = xla();
  const Optimizer sgd = SGD({.learning_rate = 0.01});
  const Trained both = trained(strategy, {.optimizer = sgd});
  const Trained training = trained(strategy, {.eval_run_eagerly = true, .optimizer = sgd});
  const Trained evaluation = trained(strategy, {.run_eagerly = true, .eval_run_eagerly = false, .optimizer = sgd});
  EXPECT_EQ(training.forwards, GetParam() * (2 + 3 * 2 + 3));
  EXPECT_EQ(evaluation.forwards, GetParam() * (3 * 6 + 2));
  expect_same_bits(both, training);
  expect_same_bits(both, evaluation);
}

// The first update of averages is other operations than the later ones, so that its size is recorded twice.
TEST_P(XlaFit, ClippingAndAverages) {
  const Strategy strategy = xla();
  const Trained function = trained(strategy, {});
  EXPECT_EQ(function.forwards, GetParam() * 5);
  expect_same_bits(function, trained(strategy, {.run_eagerly = true}));
}

TEST_P(XlaFit, LoopsHaveTheBitsOfSteps) {
  const Strategy strategy = xla();
  expect_same_bits(trained(strategy, {}), trained(strategy, {.steps_per_execution = 3}));
}

TEST_P(XlaFit, AStepThatReadsAValueIsRecordedEachTime) {
  const Strategy strategy = xla();
  ::testing::internal::CaptureStderr();
  const Trained reading = trained(strategy, {.net = {.reads = true}});
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string warning = "the train_step cannot be a function";
  const std::size_t first = said.find(warning);
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find(warning, first + 1), std::string::npos) << said;
  EXPECT_GE(reading.forwards, GetParam() * (3 * (6 + 2) + 3));
  expect_same_bits(reading, trained(strategy, {.run_eagerly = true, .net = {.reads = true}}));
}

// With two replicas the last batch has shares of 4 examples and of 3.
TEST_P(XlaFit, SharesThatDifferAreNoFunction) {
  const Strategy strategy = xla();
  const Trained function = trained(strategy, {.examples = 87});
  expect_same_bits(function, trained(strategy, {.run_eagerly = true, .examples = 87}));
  EXPECT_EQ(function.forwards, GetParam() == 1 ? 5 : GetParam() * (4 + 3));
}

// Steps that add and steps that update are two programs. With 6 steps in an epoch, those of 16 examples are both, and
// that of 4 always updates.
TEST_P(XlaFit, AccumulationAndALossScale) {
  const Strategy strategy = xla();
  const Optimizer accumulating = SGD({.learning_rate = 0.1, .gradient = {.gradient_accumulation_steps = 2}});
  const Optimizer scaling = LossScaleOptimizer(SGD({.learning_rate = 0.1}));
  for (const auto& [optimizer, recordings] : {std::pair(accumulating, 5), std::pair(scaling, 4)}) {
    const Trained function = trained(strategy, {.optimizer = optimizer});
    EXPECT_EQ(function.forwards, GetParam() * recordings);
    expect_same_bits(function, trained(strategy, {.run_eagerly = true, .optimizer = optimizer}));
    expect_same_bits(function, trained(strategy, {.optimizer = optimizer, .steps_per_execution = 3}));
  }
}

struct Followed {
  NamedTensors weights;
  NamedTensors averages;
  double evaluated = 0.0;  // the loss with the averages
  int forwards = 0;        // of training
};

Followed followed(const Strategy& strategy, bool run_eagerly, int64_t steps_per_loop) {
  const auto scope = strategy.scope();
  torch::manual_seed(5);
  strategy.set_seed(5);
  Sequential model{Dense(16, Activation::kRelu), BatchNormalization(), Dense(kClasses)};
  std::atomic<int> seen = 0;
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = Loss("counted",
                              [&](const torch::Tensor& y, const torch::Tensor& prediction) {
                                ++seen;
                                return torch::nn::functional::cross_entropy(
                                    prediction, y,
                                    torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
                              }),
                 .run_eagerly = run_eagerly});
  ModelTrainer trainer(model, {.train = batches(64).repeat(),
                               .validation = batches(32),
                               .ema = {.average_decay = 0.9, .start_step = 3, .dynamic_decay = true},
                               .verbose = Verbose::kSilent});
  Followed result;
  for (int64_t step = 0; step < 20; step += steps_per_loop) trainer.train(steps_per_loop);
  result.forwards = seen;
  result.weights = model.weights();
  result.averages = trainer.save().tensors.at("ema");
  for (auto& [name, tensor] : result.averages) tensor = tensor.cpu();
  result.evaluated = trainer.evaluate(kAllSteps)["loss"];
  return result;
}

// Before the third step the decay is 0, which is another program.
TEST_P(XlaFit, AveragesOfATrainerAreInTheStep) {
  const Strategy strategy = xla();
  const Followed eager = followed(strategy, true, 5);
  for (const int64_t steps : {1, 5}) {
    const Followed function = followed(strategy, false, steps);
    EXPECT_EQ(function.forwards, GetParam() * 2) << steps;
    EXPECT_EQ(function.evaluated, eager.evaluated);
    ASSERT_EQ(function.averages.size(), eager.averages.size());
    for (std::size_t i = 0; i < eager.averages.size(); ++i) {
      EXPECT_TRUE(torch::equal(function.averages[i].second, eager.averages[i].second)) << eager.averages[i].first;
    }
    for (std::size_t i = 0; i < eager.weights.size(); ++i) {
      EXPECT_TRUE(torch::equal(function.weights[i].second, eager.weights[i].second)) << eager.weights[i].first;
    }
  }
  const Followed host = followed(MirroredStrategy({.devices = cpu_devices(GetParam())}), false, 5);
  for (std::size_t i = 0; i < eager.averages.size(); ++i) {
    EXPECT_LT(distance(host.averages[i].second, eager.averages[i].second), 1e-4) << eager.averages[i].first;
  }
}

// A callback that changes the rate, and layers that cost something.
TEST_P(XlaFit, LayersAndCallbacks) {
  const Strategy strategy = xla();
  std::vector<NamedTensors> weights;
  for (const bool run_eagerly : {false, true}) {
    const auto scope = strategy.scope();
    torch::manual_seed(5);
    strategy.set_seed(5);
    Sequential model{Dense({.units = 16, .activation = Activation::kRelu, .kernel_regularizer = "l2"}),
                     BatchNormalization(), Dropout(0.3), Dense(kClasses)};
    model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .run_eagerly = run_eagerly});
    model.fit(batches(64), {.epochs = 4,
                            .callbacks = {LearningRateScheduler(
                                [](int64_t epoch, double) { return 0.01 / static_cast<double>(1 + epoch); })},
                            .verbose = Verbose::kSilent});
    weights.push_back(model.weights());
  }
  for (std::size_t i = 0; i < weights[0].size(); ++i) {
    EXPECT_TRUE(torch::equal(weights[0][i].second, weights[1][i].second)) << weights[0][i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(Replicas, XlaFit, ::testing::Values(1, 2));

}  // namespace
}  // namespace cohort::equivalence::xla_fit_test
