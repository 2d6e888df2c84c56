// TensorFlow's tutorials with the weights and pictures of tutorials_facts.py: what the notebooks print.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cohort/cohort.h"
#include "tests/golden/golden.h"
#include "tests/support/drawn.h"
#include "tests/support/files.h"
#include "tests/support/server_cluster.h"
#include "tests/support/workers.h"

namespace cohort::testing::tutorials_test {
namespace {

using nlohmann::json;

constexpr Tolerance kWithin = {.absolute = 1e-5, .relative = 1e-5};
constexpr int64_t kExamples = 160, kTested = 48;

json facts(const std::string& tutorial) {
  const auto file = std::filesystem::path(__FILE__).parent_path() / "tutorials_facts.json";
  return json::parse(std::ifstream(file)).at(tutorial);
}

Example pictures(const std::string& name, int64_t count) {
  torch::Tensor x = (drawn(name + ".x", {count, 28, 28}) + 1.0) / 2.0;
  const torch::Tensor y = torch::arange(count, torch::kLong) * 7 % 10;
  for (int64_t i = 0; i < count; ++i) x[i][2 * y[i].item<int64_t>() + 3] += 1.0;
  return {.x = x, .y = y};
}

// The pictures have their channel last, as in the notebooks, or are rows.
Dataset dataset(const std::string& name, int64_t count, const Shape& picture = {28, 28, 1}) {
  const Example all = pictures(name, count);
  Shape shape = picture;
  shape.insert(shape.begin(), count);
  return Dataset::from_tensor_slices(all.x.reshape(shape), all.y);
}

void set_drawn(const Model& model) {
  NamedTensors weights = model.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto& [name, tensor] = weights[i];
    weights[i].second = drawn(std::to_string(i) + name.substr(name.rfind('.')), tensor.sizes().vec());
  }
  model.set_weights(weights);
}

void expect_columns(const History& history, const json& wanted) {
  for (const auto& [name, values] : wanted.items()) {
    EXPECT_EQ(difference(name, torch::tensor(history[name], torch::kDouble), golden_tensor(values), kWithin), "");
  }
}

void expect_logs(const Logs& logs, const json& wanted) {
  for (const auto& [name, value] : wanted.items()) EXPECT_EQ(difference(name, logs[name], value, kWithin), "");
}

// What a loop prints, an epoch an element.
using Columns = std::map<std::string, std::vector<double>>;

void expect_columns(const Columns& columns, const json& wanted) {
  ASSERT_EQ(columns.size(), wanted.size());
  for (const auto& [name, values] : columns) {
    EXPECT_EQ(difference(name, torch::tensor(values, torch::kDouble), golden_tensor(wanted.at(name)), kWithin), "");
  }
}

FitOptions epochs(int64_t count) {
  return {.epochs = count, .verbose = Verbose::kSilent, .input = {.auto_shard = AutoShard::kData}};
}

Layer image_layer(const Layer& layer) {
  return ChannelsLast(layer);
}

Sequential create_model() {
  Sequential model({image_layer(Conv2D({.filters = 32, .kernel_size = 3, .activation = "relu"})),
                    image_layer(MaxPooling2D()), Flatten(), Dense(64, "relu"), Dense(10)},
                   {.dtype = torch::kDouble});
  model.build({28, 28, 1});
  model.compile({.optimizer = Adam({.learning_rate = 0.001}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  set_drawn(model);
  return model;
}

TEST(Tutorials, DistributedTrainingWithKeras) {
  const json wanted = facts("distributed_keras");
  const TemporaryFolder folder;
  const Dataset tested = dataset("test", kTested).batch(64);
  {
    const MirroredStrategy strategy({.devices = cpu_devices(2)});
    const auto scope = strategy.scope();
    Sequential model = create_model();
    FitOptions options = epochs(4);
    options.callbacks = {LearningRateScheduler([](int64_t epoch, double) { return epoch < 3 ? 1e-3 : 1e-4; })};
    expect_columns(model.fit(dataset("train", kExamples).batch(64), options), wanted.at("history"));
    expect_logs(model.evaluate(tested, {.verbose = Verbose::kSilent}), wanted.at("evaluate"));
    save_model(model, folder / "m.keras");
  }
  Model unreplicated = load_model(folder / "m.keras");
  expect_logs(unreplicated.evaluate(tested, {.verbose = Verbose::kSilent}), wanted.at("unreplicated"));
}

TEST(Tutorials, SaveAndLoad) {
  const json wanted = facts("save_and_load");
  const TemporaryFolder folder;
  const Dataset data = dataset("train", kExamples).batch(64);
  {
    const MirroredStrategy mirrored({.devices = cpu_devices(2)});
    const auto scope = mirrored.scope();
    Sequential model = create_model();
    expect_columns(model.fit(data, epochs(2)), wanted.at("history"));
    save_model(model, folder / "m.keras");
    const torch::Tensor x = pictures("test", 3).x.unsqueeze(-1);
    export_model(model, folder / "m.pt", {.example = {.x = x}});
    torch::jit::Module loaded = torch::jit::load((folder / "m.pt").string());
    const torch::Tensor answer = loaded.forward({x}).toTensor();
    // Keras rounds the decays of Adam to float32.
    EXPECT_EQ(difference("predictions", answer, golden_tensor(wanted.at("predict")), {.absolute = 5e-5}), "");
  }
  Model restored = load_model(folder / "m.keras");
  expect_columns(restored.fit(data, epochs(2)), wanted.at("restored"));
  const OneDeviceStrategy another_strategy("/CPU:0");
  const auto scope = another_strategy.scope();
  Model another = load_model(folder / "m.keras");
  expect_columns(another.fit(data, epochs(2)), wanted.at("another"));
}

TEST(Tutorials, KerasGuide) {
  const json wanted = facts("guide");
  const auto rows = [](const char* name, int64_t count) { return dataset(name, count, {784}).batch(64); };
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const SymbolicTensor inputs = Input({784});
  SymbolicTensor x = Dense(256, "relu")(inputs);
  x = Dense(256, "relu")(x);
  Functional model({inputs}, {Dense(10)(x)}, {.dtype = torch::kDouble});
  model.compile({.optimizer = Adam(),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy()}});
  set_drawn(model);
  FitOptions options = epochs(2);
  options.validation_data = rows("validation", kTested);
  expect_columns(model.fit(rows("train", kExamples), options), wanted.at("history"));
  expect_logs(model.evaluate(rows("test", kTested), {.verbose = Verbose::kSilent}), wanted.at("evaluate"));
}

// A custom training loop's step, as the notebooks have it.
class Training {
 public:
  Training(const Strategy& strategy, const Sequential& model, const Optimizer& optimizer)
      : strategy_(strategy), model_(model), optimizer_(strategy.optimizer(model, optimizer)) {}

  double train_step(const GlobalBatch& batch) {
    const auto losses = strategy_.run(
        [this](Replica& replica, const Example& inputs) {
          const torch::Tensor predictions = model_(inputs.x, {.training = true});
          torch::Tensor loss = compute_average_loss(loss_object_.per_example(inputs.y, predictions));
          for (const torch::Tensor& each : model_.losses()) loss = loss + scale_regularization_loss(each);
          optimizer_[replica].apply_gradients(torch::autograd::grad({loss}, model_.trainable_variables()));
          train_accuracy_.update_state(inputs.y, predictions.detach());
          return loss.detach();
        },
        batch);
    return strategy_.reduce(ReduceOp::kSum, losses).item<double>();
  }

  void test_step(const GlobalBatch& batch) {
    strategy_.run(
        [this](const Example& inputs) {
          const torch::NoGradGuard no_grad;
          const torch::Tensor predictions = model_(inputs.x, {.training = false});
          test_loss_.update_state(loss_object_.per_example(inputs.y, predictions));
          test_accuracy_.update_state(inputs.y, predictions);
        },
        batch);
  }

  // Adds what an epoch prints to the columns.
  void finish_epoch(const std::vector<double>& losses, Columns& columns) {
    const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
    columns["loss"].push_back(sum / static_cast<double>(losses.size()));
    columns["accuracy"].push_back(train_accuracy_.result());
    train_accuracy_.reset_state();
  }
  void finish_test(Columns& columns) {
    columns["test_loss"].push_back(test_loss_.result());
    columns["test_accuracy"].push_back(test_accuracy_.result());
    test_loss_.reset_state();
    test_accuracy_.reset_state();
  }

 private:
  Strategy strategy_;
  Sequential model_;
  MirroredOptimizer optimizer_;
  Loss loss_object_ = SparseCategoricalCrossentropy({.from_logits = true});
  MirroredMetric train_accuracy_{strategy_, SparseCategoricalAccuracy({.name = "train_accuracy"})};
  MirroredMetric test_accuracy_{strategy_, SparseCategoricalAccuracy({.name = "test_accuracy"})};
  MirroredMetric test_loss_{strategy_, Mean({.name = "test_loss"})};
};

TEST(Tutorials, CustomTraining) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const Regularizer l2 = Regularizer::l2(1e-5);
  const auto convolution = [&](int64_t filters) {
    return image_layer(Conv2D({.filters = filters, .kernel_size = 3, .activation = "relu", .kernel_regularizer = l2}));
  };
  Sequential model({convolution(32), image_layer(MaxPooling2D()), convolution(64), image_layer(MaxPooling2D()),
                    Flatten(), Dense({.units = 64, .activation = "relu", .kernel_regularizer = l2}),
                    Dense({.units = 10, .kernel_regularizer = l2})},
                   {.dtype = torch::kDouble});
  model.build({28, 28, 1});
  set_drawn(model);
  Training training(strategy, model, Adam({.learning_rate = 0.001}));
  Columns columns;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<double> losses;
    for (const GlobalBatch& x : strategy.distribute(dataset("train", kExamples).batch(64))) {
      losses.push_back(training.train_step(x));
    }
    for (const GlobalBatch& x : strategy.distribute(dataset("test", kTested).batch(64))) training.test_step(x);
    training.finish_epoch(losses, columns);
    training.finish_test(columns);
  }
  expect_columns(columns, facts("custom_training"));
}

Sequential small_cnn(const Regularizer& l2 = {}) {
  Sequential model(
      {Reshape({28, 28, 1}),
       image_layer(Conv2D({.filters = 32, .kernel_size = 3, .activation = "relu", .kernel_regularizer = l2})),
       Flatten(), Dense({.units = 128, .activation = "relu", .kernel_regularizer = l2}), Dense(10)},
      {.dtype = torch::kDouble});
  model.build({28, 28});
  set_drawn(model);
  return model;
}

TEST(Tutorials, SeveralWorkersWithKeras) {
  const json wanted = facts("multi_worker_with_keras");
  with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    Sequential model = small_cnn();
    model.compile({.optimizer = SGD({.learning_rate = 0.005, .momentum = 0.9}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
    const Dataset data = dataset("train", kExamples, {28, 28}).batch(32).repeat();
    FitOptions options = epochs(2);
    options.steps_per_epoch = 5;
    expect_columns(model.fit(data, options), wanted.at("history"));
    options.epochs = 1;
    options.input.auto_shard = AutoShard::kOff;
    expect_columns(model.fit(data, options), wanted.at("no_auto_shard"));
  });
}

TEST(Tutorials, CustomLoopWithSeveralWorkers) {
  const json wanted = facts("multi_worker_with_ctl");
  with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    Training training(strategy, small_cnn(Regularizer::l2(1e-4)), SGD({.learning_rate = 0.005, .momentum = 0.9}));
    const DistributedDataset data = strategy.distribute_from_function([](const InputContext& context) {
      return dataset("train", kExamples, {28, 28})
          .shard(context.num_input_pipelines, context.input_pipeline_id)
          .repeat()
          .batch(context.per_replica_batch_size(32));
    });
    DistributedIterator iterator = data.iterator();
    Columns columns;
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<double> losses;
      for (int step = 0; step < 5; ++step) losses.push_back(training.train_step(*iterator.next()));
      training.finish_epoch(losses, columns);
    }
    expect_columns(columns, wanted);
  });
}

struct WordsImpl : torch::nn::Module {
  WordsImpl() {
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    embedding->weight.copy_(drawn("0.weight", {8, 64}));
    dense->weight.copy_(drawn("1.weight", {1, 64}));
    dense->bias.copy_(drawn("1.bias", {1}));
  }
  torch::Tensor forward(const torch::Tensor& ids) { return torch::sigmoid(dense(embedding(ids).mean(1))); }
  torch::nn::Embedding embedding{register_module("embedding", torch::nn::Embedding(8, 64))};
  torch::nn::Linear dense{register_module("dense", torch::nn::Linear(64, 1))};
};
TORCH_MODULE(Words);

Dataset words() {
  const torch::Tensor ids = (torch::arange(40).unsqueeze(1) * 5 + torch::arange(3) * 3) % 7 + 1;
  return Dataset::from_tensor_slices(ids, ids.eq(1).any(1, /*keepdim=*/true).to(torch::kDouble)).batch(16).repeat();
}

TEST(Tutorials, ParameterServers) {
  Columns columns;
  const ServerCluster cluster({.strategy = {.variable_partitioner = FixedShardsPartitioner(2)}});
  cluster.run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const auto model = strategy.mirror([] { return Words(); });
    const auto optimizer =
        strategy.optimizer(model, RMSprop({.learning_rate = 0.01, .formulation = Formulation::kLegacy}));
    Variable hits = strategy.variable(torch::zeros({}), {.name = "hits"});
    const PerWorkerDataset data = strategy.create_per_worker_dataset([](const InputContext&) { return words(); });
    const auto replica_fn = [&](Replica& replica, const Example& batch) {
      const torch::Tensor pred = model[replica]->forward(batch.x);
      const torch::Tensor loss = compute_average_loss(BinaryCrossentropy().per_example(batch.y, pred));
      optimizer[replica].minimize(loss);
      hits.assign_add(pred.gt(0.5).eq(batch.y.gt(0.5)).sum().to(torch::kFloat));
      return std::vector{loss.detach(), torch::tensor(batch.size())};
    };
    strategy.register_step("step", [&](const std::vector<torch::Tensor>&) {
      return strategy.run(replica_fn, PerReplica<Example>({*data.next()}))[0];
    });
    if (strategy.serve()) return;
    const ClusterCoordinator coordinator(strategy);
    double examples = 0.0;
    for (int step = 0; step < 8; ++step) {
      const std::vector<torch::Tensor> result = coordinator.schedule("step").fetch();
      examples += result[1].item<double>();
      columns["loss"].push_back(result[0].item<double>());
      columns["accuracy"].push_back(hits.read().item<double>() / examples);
    }
  });
  expect_columns(columns, facts("parameter_server_training"));
}

}  // namespace
}  // namespace cohort::testing::tutorials_test
