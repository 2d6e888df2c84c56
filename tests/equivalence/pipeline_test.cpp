// Models that are divided among stages against one device: 20 steps of Adam in float64, with every schedule,
// microbatches of different sizes, and last batches that are short.
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "tests/equivalence/outcomes.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::equivalence::pipeline_test {
namespace {

constexpr int64_t kEpochs = 4;
constexpr int64_t kRows = 4 * 12 + 1;  // five steps a pass; the last batch has one example
constexpr int64_t kClasses = 6;

struct Kind {
  std::string name;
  PipelineScheduleOptions schedule;
};

// Five microbatches of a batch of twelve have three and two examples.
std::vector<Kind> kinds() {
  return {{"gpipe", ScheduleGPipe{.microbatches = 5}},
          {"1f1b", Schedule1F1B{.microbatches = 5}},
          {"interleaved", ScheduleInterleaved{.microbatches = 5, .chunks = 2}},
          {"zero_bubble_h1", ScheduleZeroBubbleH1{.microbatches = 5}}};
}

std::vector<Layer> layers() {
  return {Dense(10, Activation::kTanh),
          Dense({.units = 9, .activation = "relu", .kernel_regularizer = Regularizer::l2(0.01)}),
          LayerNormalization(),
          Dense(8, Activation::kSoftmax),
          Dense(7, Activation::kGelu),
          Dense(kClasses)};
}

Dataset batches() {
  torch::manual_seed(7);
  return Dataset::from_tensor_slices(Example{.x = torch::randn({kRows, 6}, torch::kDouble),
                                             .y = torch::randint(kClasses, {kRows}, torch::kLong),
                                             .weight = torch::rand({kRows}, torch::kDouble)})
      .batch(12);
}

// Every run begins with the same values.
Sequential made(const std::vector<Layer>& net, const Optimizer& rule) {
  Sequential model(net, {.dtype = torch::kDouble});
  model.build({6});
  torch::manual_seed(3);
  NamedTensors weights = model.weights();
  for (auto& [name, value] : weights) value = torch::randn(value.sizes(), torch::kDouble) * 0.4;
  model.set_weights(weights);
  model.compile({.optimizer = rule,
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy()}});
  return model;
}

Outcome train(Sequential model, int64_t epochs = kEpochs, int64_t first = 0) {
  return outcome_of(model, batches(), epochs, first);
}

Optimizer adam(const GradientOptions& gradient = {}) {
  AdamOptions options{.learning_rate = 0.02};
  options.gradient = gradient;
  options.ema.use_ema = true;
  return Adam(options);
}

Outcome under(const Strategy& strategy, const std::vector<Layer>& net = layers(), const Optimizer& rule = adam()) {
  const auto scope = strategy.scope();
  return train(made(net, rule));
}

PipelineStrategy pipeline(int stages, const PipelineScheduleOptions& schedule,
                          const std::vector<std::string>& cut = {}) {
  return PipelineStrategy({.devices = cpu_devices(stages), .schedule = schedule, .cut = cut});
}

PipelineStrategy beside_batch(int batch, int stages, const PipelineScheduleOptions& schedule, int sharding = 0) {
  return PipelineStrategy({.mesh = DeviceMesh({batch, stages}, {"batch", "stage"}, cpu_devices(batch * stages)),
                           .schedule = schedule,
                           .sharding = {.stage = sharding}});
}

TEST(Pipeline, LearnsAsOneDevice) {
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"));
  EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
  for (const Kind& kind : kinds()) {
    for (const int stages : {2, 3}) {
      SCOPED_TRACE(c10::str(kind.name, " of ", stages));
      expect_like(under(pipeline(stages, kind.schedule)), wanted);
    }
  }
}

TEST(Pipeline, LearnsBesideTheBatchAsOneDevice) {
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"));
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    expect_like(under(beside_batch(2, 2, kind.schedule)), wanted);
  }
  expect_like(under(beside_batch(3, 2, Schedule1F1B{.microbatches = 3}, /*sharding=*/1)), wanted);
}

// Layers of which the replicas of a line have parts. The second cut lies between columns and rows.
std::vector<Layer> divided_layers() {
  return {Dense(10, Activation::kTanh), Dense({.units = 8, .activation = "relu"}),
          LayerNormalization(),         Dense(12, Activation::kGelu),
          Dense(7, Activation::kTanh),  Dense(kClasses)};
}

const LayoutMap& divided_layout() {
  static const LayoutMap layout = {
      {"dense(_2)?\\.weight", {"model", ""}}, {"dense(_2)?\\.bias", {"model"}}, {"dense_[13]\\.weight", {"", "model"}}};
  return layout;
}

PipelineStrategy beside_model(const std::vector<int>& sizes, const PipelineScheduleOptions& schedule, int sharding,
                              const std::vector<std::string>& cut = {}) {
  int places = 1;
  for (const int size : sizes) places *= size;
  return PipelineStrategy({.mesh = DeviceMesh(sizes, {"batch", "model", "stage"}, cpu_devices(places)),
                           .layout = divided_layout(),
                           .schedule = schedule,
                           .cut = cut,
                           .sharding = {.stage = sharding}});
}

TEST(Pipeline, StagesOfPartsLearnAsOneDevice) {
  GradientOptions gradient;
  gradient.global_clipnorm = 0.05;
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), divided_layers(), adam(gradient));
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    expect_like(under(beside_model({1, 2, 2}, kind.schedule, 0), divided_layers(), adam(gradient)), wanted);
  }
  const Schedule1F1B schedule{.microbatches = 3};
  expect_like(under(beside_model({2, 2, 2}, schedule, /*sharding=*/1), divided_layers(), adam(gradient)), wanted);
  expect_like(under(beside_model({1, 2, 2}, schedule, 0, {"dense_3"}), divided_layers(), adam(gradient)), wanted);
}

TEST(Pipeline, NormsAndScalesAreThoseOfAllStages) {
  GradientOptions all, each, scaled;
  all.global_clipnorm = 0.05;
  each.clipnorm = 0.02;
  scaled.global_clipnorm = 0.05;
  scaled.loss_scale = LossScale{};
  scaled.gradient_accumulation_steps = 2;
  for (const GradientOptions& gradient : {all, each, scaled}) {
    expect_like(under(pipeline(2, ScheduleZeroBubbleH1{.microbatches = 4}), layers(), adam(gradient)),
                under(OneDeviceStrategy("/CPU:0"), layers(), adam(gradient)));
  }
}

// docs/parallelism.md has these lines.
Sequential sample() {
  const PipelineStrategy strategy({.devices = cpu_devices(2), .schedule = Schedule1F1B{.microbatches = 8}});
  const auto scope = strategy.scope();
  return Sequential{Dense(64, Activation::kRelu), Dense(64, Activation::kRelu), Stage(), Dense(10)};
}

TEST(Pipeline, TheSampleIsCut) {
  Sequential model = sample();
  model.compile({.optimizer = SGD(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  const torch::Tensor x = torch::randn({32, 12}), y = torch::randint(10, {32}, torch::kLong);
  const Logs logs = model.train_on_batch({.x = x, .y = y});
  EXPECT_EQ(model.optimizer().iterations(), 1);
  EXPECT_GT(logs["loss"], 0.0);
}

// Whatever the cut and the schedule, a microbatch draws the same numbers.
TEST(Pipeline, DropsOutAlikeWhateverTheCut) {
  const std::vector<Layer> net = {Dense(8), Dropout(0.3), Dense(8, Activation::kRelu), Dropout(0.2), Dense(kClasses)};
  const auto run = [&](const Strategy& strategy) {
    strategy.set_seed(5);
    return under(strategy, net);
  };
  const Outcome wanted = run(pipeline(1, ScheduleGPipe{.microbatches = 5}));
  expect_like(run(pipeline(2, Schedule1F1B{.microbatches = 5}, {"dense_1"})), wanted);
  expect_like(run(pipeline(2, ScheduleInterleaved{.microbatches = 5}, {"dropout", "dense_1", "dropout_1"})), wanted);
}

TEST(Pipeline, AnEvaluationDrawsNoNumbers) {
  const auto weights = [](bool evaluates) {
    const PipelineStrategy strategy = pipeline(2, Schedule1F1B{.microbatches = 5}, {"dense_1"});
    strategy.set_seed(5);
    const auto scope = strategy.scope();
    Sequential model = made({Dense(8), Dropout(0.3), Dense(kClasses)}, adam());
    FitOptions options{.epochs = 2, .verbose = Verbose::kSilent};
    if (evaluates) options.validation_data = batches();
    model.fit(batches(), options);
    return model.weights();
  };
  expect_same(weights(true), weights(false));
}

TEST(Pipeline, ASynchronizedBatchNormIsRefused) {
  const PipelineStrategy strategy = pipeline(2, Schedule1F1B{.microbatches = 5}, {"dense_1"});
  const auto scope = strategy.scope();
  Sequential model({Dense(8), BatchNormalization({.synchronized = true}), Dense(kClasses)}, {.dtype = torch::kDouble});
  model.build({6});
  model.compile({.optimizer = SGD(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  testing::expect_error<Unimplemented>([&] { model.fit(batches(), {.verbose = Verbose::kSilent}); },
                                       "a synchronized batch norm needs the replica's whole share");
}

TEST(Pipeline, LearnsInMixedPrecision) {
  const auto last_loss = [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Sequential model{Dense(32, Activation::kTanh), Dense(32, Activation::kTanh), Dense(kClasses)};
    model.build({6});
    torch::manual_seed(3);
    NamedTensors weights = model.weights();
    for (auto& [name, value] : weights) value = torch::randn(value.sizes()) * 0.4;
    model.set_weights(weights);
    model.compile({.optimizer = SGD({.learning_rate = 0.1}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .precision = PrecisionPolicy::kMixedBFloat16});
    const Dataset data = batches().map([](Example batch) {
      batch.x = batch.x.to(torch::kFloat);
      batch.weight = batch.weight.to(torch::kFloat);
      return batch;
    });
    return model.fit(data, {.epochs = 8, .verbose = Verbose::kSilent})["loss"].back();
  };
  const double wanted = last_loss(OneDeviceStrategy("/CPU:0"));
  for (const Kind& kind : kinds()) {
    if (kind.name == "interleaved") continue;
    EXPECT_NEAR(last_loss(pipeline(2, kind.schedule)), wanted, 0.02) << kind.name;
  }
}

// The weight of the table is that of the last layer, too: gradients of one are sparse and of the other dense.
struct TableAndHeadImpl : torch::nn::Module {
  TableAndHeadImpl() {
    table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(kClasses, 4).sparse(true)));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return next_stage(table(x)).matmul(table->weight.t()); }
  torch::nn::Embedding table{nullptr};
};
TORCH_MODULE(TableAndHead);

TEST(Pipeline, AddsSparseGradientsToDenseOnes) {
  const auto weight = [](const Strategy& strategy) {
    torch::manual_seed(5);
    const auto net = strategy.mirror([] { return TableAndHead(); });
    const MirroredOptimizer sgd = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
    const PerReplica<Example> batch({Example{.x = torch::arange(12) % kClasses}});
    for (int step = 0; step < 3; ++step) {
      strategy.run(
          [&](Replica& replica, const Example& part) {
            sgd[replica].minimize(replica.global_mean(net[replica]->forward(part.x).square()));
          },
          batch);
    }
    return net[std::size_t{0}]->table->weight.detach().clone();
  };
  EXPECT_LT(gap_between(weight(pipeline(2, Schedule1F1B{.microbatches = 5})), weight(OneDeviceStrategy("/CPU:0"))),
            kClose);
}

TEST(Pipeline, CheckpointsAreThoseOfOtherStrategies) {
  const auto run = [&](const Strategy& strategy, int64_t epochs, const std::filesystem::path& folder) {
    const auto scope = strategy.scope();
    Sequential model = made(layers(), adam());
    (void)model.fit(batches(), {.epochs = epochs,
                                .callbacks = {BackupAndRestore({.directory = folder, .delete_checkpoint = false})},
                                .verbose = Verbose::kSilent});
    return model.weights();
  };
  const PipelineStrategy stages = beside_batch(2, 2, ScheduleZeroBubbleH1{.microbatches = 3});
  const MirroredStrategy mirrored({.devices = cpu_devices(2)});
  const testing::TemporaryFolder of_stages, of_copies, whole;
  run(stages, kEpochs / 2, of_stages.path());
  run(mirrored, kEpochs / 2, of_copies.path());
  const NamedTensors wanted = run(mirrored, kEpochs, whole.path());
  expect_same(run(mirrored, kEpochs, of_stages.path()), wanted);
  expect_same(run(stages, kEpochs, of_copies.path()), wanted);
}

// Own loops, with LibTorch's modules: two values from a stage to the next, a weight of the first stage used by the last
// one, and a batch norm.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    embedding = register_parameter("embedding", torch::randn({6, 8}, torch::kDouble) * 0.3);
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    middle = register_module("middle", torch::nn::Linear(8, 8));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> both = {norm->forward(x.matmul(embedding)), x.matmul(embedding)};
    both = next_stage(both);
    torch::Tensor y = torch::tanh(middle->forward(both[0])) + both[1];
    y = stage_place(y, "head");
    return y.matmul(embedding.t());
  }
  torch::Tensor embedding;
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear middle{nullptr};
};
TORCH_MODULE(Net);

torch::Tensor step_input(int step) {
  torch::manual_seed(100 + step);
  return torch::randn({step % 5 == 4 ? 7 : 12, 6}, torch::kDouble);
}

// The sizes of the microbatches of `rows` examples, of which there are three.
std::vector<int64_t> sizes_of(int64_t rows) {
  return {rows / 3 + (rows % 3 > 0 ? 1 : 0), rows / 3 + (rows % 3 > 1 ? 1 : 0), rows / 3};
}

NamedTensors values_of(const torch::nn::Module& net) {
  NamedTensors list;
  for (const auto& each : net.named_parameters()) list.emplace_back(each.key(), each.value().detach().clone());
  for (const auto& each : net.named_buffers()) list.emplace_back(each.key(), each.value().to(torch::kDouble));
  return list;
}

// LibTorch alone, a microbatch after the other.
NamedTensors by_libtorch(std::vector<double>& losses) {
  torch::manual_seed(5);
  Net net;
  torch::optim::Adam rule(net->parameters(), torch::optim::AdamOptions(0.02));
  for (int step = 0; step < 20; ++step) {
    const torch::Tensor x = step_input(step);
    rule.zero_grad();
    int64_t begin = 0;
    double total = 0.0;
    for (const int64_t size : sizes_of(x.size(0))) {
      const torch::Tensor part = x.slice(0, begin, begin + size);
      const torch::Tensor loss = (net->forward(part) - part).square().sum() / static_cast<double>(x.numel());
      loss.backward();
      total += loss.item<double>();
      begin += size;
    }
    rule.step();
    losses.push_back(total);
  }
  return values_of(*net);
}

TEST(Pipeline, ABatchNormLearnsAsOnOneDeviceWithTheSameMicrobatches) {
  std::vector<double> wanted_losses;
  const NamedTensors wanted = by_libtorch(wanted_losses);
  for (const Kind& kind :
       {Kind{"gpipe", ScheduleGPipe{.microbatches = 3}}, Kind{"1f1b", Schedule1F1B{.microbatches = 3}},
        Kind{"zero_bubble_h1", ScheduleZeroBubbleH1{.microbatches = 3}}}) {
    SCOPED_TRACE(kind.name);
    const PipelineStrategy strategy({.devices = cpu_devices(3), .schedule = kind.schedule, .cut = {"head"}});
    torch::manual_seed(5);
    const auto net = strategy.mirror([] { return Net(); });
    const MirroredOptimizer rule =
        strategy.optimizer(net, Adam({.learning_rate = 0.02, .epsilon = 1e-8, .formulation = Formulation::kTorch}));
    for (int step = 0; step < 20; ++step) {
      const PerReplica<Example> batch({Example{.x = step_input(step)}});
      const auto results = strategy.run(
          [&](Replica& replica, const Example& part) {
            const torch::Tensor y = net[replica]->forward(part.x);
            const torch::Tensor loss = replica.global_mean((y - part.x).square());
            rule[replica].minimize(loss);
            return std::pair(loss, y);
          },
          batch);
      EXPECT_NEAR(results[0].first.item<double>(), wanted_losses[static_cast<std::size_t>(step)], kClose);
      EXPECT_EQ(results[0].second.size(0), batch[0].size());
    }
    expect_same(values_of(*net[std::size_t{0}]), wanted);
  }
}

}  // namespace
}  // namespace cohort::equivalence::pipeline_test
