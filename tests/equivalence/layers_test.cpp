// Layers that fit() trains on replicas, on workers and on parameter servers against one device, with short last batches
// and empty shares.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <mutex>

#include "cohort/cohort.h"
#include "tests/equivalence/runs.h"
#include "tests/support/server_cluster.h"
#include "tests/support/workers.h"

namespace cohort::equivalence::layers_test {
namespace {

constexpr int64_t kEpochs = 2;
constexpr int64_t kRows = 4 * 12 + 1;  // the last batch has one example, which leaves shares empty

struct Net {
  std::string name;
  Shape input;
  std::function<std::vector<Layer>()> layers;
  Shape target = {};  // of numbers; empty: a class of several
  bool gaps = false;  // whether some steps of the input are zero, for Masking
};

std::vector<Net> nets_of_pictures() {
  return {
      {"group_normalization",
       {3, 6, 6},
       [] {
         return std::vector<Layer>{Conv2D(4, 3), GroupNormalization({.groups = 2}), Layer(Activation::kRelu), Flatten(),
                                   Dense(kClasses)};
       }},
      {"rms_and_layer_normalization",
       {7},
       [] {
         return std::vector<Layer>{Dense(8), RMSNormalization(), Dense(6, Activation::kRelu), LayerNormalization(),
                                   Dense(kClasses)};
       }},
      {"separable_conv2d",
       {3, 7, 7},
       [] {
         return std::vector<Layer>{SeparableConv2D({.filters = 4,
                                                    .kernel_size = 3,
                                                    .strides = 2,
                                                    .padding = Padding::kSame,
                                                    .depth_multiplier = 2,
                                                    .activation = Activation::kRelu}),
                                   GlobalAveragePooling2D(), Dense(kClasses)};
       }},
      {"conv2d_transpose",
       {2, 4, 4},
       [] {
         return std::vector<Layer>{
             Conv2DTranspose({.filters = 3, .kernel_size = 3, .strides = 2, .padding = Padding::kSame}),
             Layer(Activation::kRelu), MaxPooling2D(), Flatten(), Dense(kClasses)};
       }},
      {"conv1d_and_conv3d",
       {2, 3, 4, 4},
       [] {
         return std::vector<Layer>{
             Conv3D({.filters = 3, .kernel_size = 2, .activation = Activation::kRelu}), Reshape({3, 18}),
             Conv1D({.filters = 4, .kernel_size = 3, .padding = Padding::kSame}), Flatten(), Dense(kClasses)};
       }},
  };
}

std::vector<Net> nets_of_sequences() {
  return {
      {"multi_head_attention",
       {5, 6},
       [] {
         return std::vector<Layer>{Masking(), MultiHeadAttention({.num_heads = 2, .key_dim = 3}), LayerNormalization(),
                                   GlobalAveragePooling1D(), Dense(kClasses)};
       },
       {},
       true},
      {"causal_attention",
       {5, 6},
       [] {
         return std::vector<Layer>{MultiHeadAttention({.num_heads = 3, .key_dim = 2, .use_causal_mask = true}),
                                   TimeDistributed(Dense(2))};
       },
       {5, 2}},
      {"lstm",
       {5, 4},
       [] {
         return std::vector<Layer>{Masking(), LSTM({.units = 6, .return_sequences = true}), LSTM(4), Dense(kClasses)};
       },
       {},
       true},
      {"gru",
       {5, 4},
       [] {
         return std::vector<Layer>{Bidirectional(GRU({.units = 3, .return_sequences = true})), GRU(4), Dense(kClasses)};
       }},
      // The output has a mask, so that the loss leaves steps out.
      {"masked_sequences",
       {5, 4},
       [] {
         return std::vector<Layer>{Masking(), Bidirectional(LSTM({.units = 3, .return_sequences = true})),
                                   TimeDistributed(Dense(2))};
       },
       {5, 2},
       true},
  };
}

std::vector<Net> nets() {
  std::vector<Net> all = nets_of_pictures();
  for (Net& net : nets_of_sequences()) all.push_back(std::move(net));
  return all;
}

class Numbers {  // of a generator of its own: workers are threads here
 public:
  explicit Numbers(uint64_t seed) : generator_(at::detail::createCPUGenerator(seed)) {}
  torch::Tensor drawn(at::IntArrayRef shape) { return torch::randn(shape, generator_, torch::kDouble); }
  torch::Tensor classes() { return torch::randint(kClasses, {kRows}, generator_, torch::kLong); }

 private:
  at::Generator generator_;
};

Dataset batches(const Net& net) {
  Numbers numbers(7);
  const auto rows_of = [](Shape shape) {
    shape.insert(shape.begin(), kRows);
    return shape;
  };
  torch::Tensor x = numbers.drawn(rows_of(net.input));
  if (net.gaps) {
    x.select(1, 3).slice(0, 0, kRows, 2).zero_();
    x.select(1, 4).zero_();
  }
  const torch::Tensor y = net.target.empty() ? numbers.classes() : numbers.drawn(rows_of(net.target));
  return Dataset::from_tensor_slices(x, y).batch(12);
}

struct Outcome {
  History history;
  NamedTensors weights;
  torch::Tensor predictions;
};

Sequential made(const Net& net) {
  Sequential model(net.layers(), {.dtype = torch::kDouble});
  model.build(net.input);
  Numbers numbers(3);
  NamedTensors weights = model.weights();
  for (auto& [name, value] : weights) value = numbers.drawn(value.sizes()) * 0.4;
  model.set_weights(weights);
  model.compile({.optimizer = Adam({.learning_rate = 0.02}),
                 .loss = net.target.empty() ? Loss(SparseCategoricalCrossentropy({.from_logits = true}))
                                            : Loss(MeanSquaredError())});
  return model;
}

Outcome train(const Net& net, Sequential model) {
  const Dataset data = batches(net);
  Outcome outcome{
      .history = model.fit(data, {.epochs = kEpochs, .validation_data = data.take(2), .verbose = Verbose::kSilent})};
  outcome.weights = model.weights();
  outcome.predictions = model.predict(data);
  return outcome;
}

Outcome under(const Strategy& strategy, const Net& net) {
  const auto scope = strategy.scope();
  return train(net, made(net));
}

void expect_like(const Outcome& got, const Outcome& wanted) {
  for (const char* name : {"loss", "val_loss"}) {
    for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
      EXPECT_NEAR(got.history[name].at(epoch), wanted.history[name].at(epoch), 1e-9) << name << ", epoch " << epoch;
    }
  }
  ASSERT_EQ(got.weights.size(), wanted.weights.size());
  for (std::size_t i = 0; i < got.weights.size(); ++i) {
    EXPECT_LT(distance(got.weights[i].second, wanted.weights[i].second), 1e-9) << got.weights[i].first;
  }
  ASSERT_EQ(got.predictions.sizes(), wanted.predictions.sizes());
  EXPECT_LT(distance(got.predictions, wanted.predictions), 1e-9);
}

class Layers : public ::testing::TestWithParam<Net> {
 protected:
  Layers() : wanted_(under(OneDeviceStrategy("/CPU:0"), GetParam())) {}

  Outcome wanted_;
};

TEST_P(Layers, LearnAsOnOneDeviceOnReplicas) {
  EXPECT_LT(wanted_.history["loss"].back(), wanted_.history["loss"].front());
  for (const int replicas : {2, 3}) {
    SCOPED_TRACE(c10::str(replicas, " replicas"));
    expect_like(under(MirroredStrategy({.devices = cpu_devices(replicas)}), GetParam()), wanted_);
  }
  expect_like(under(CentralStorageStrategy({.compute_devices = cpu_devices(2)}), GetParam()), wanted_);
}

TEST_P(Layers, LearnAsOnOneDeviceOnWorkers) {
  std::mutex mutex;
  std::vector<Outcome> outcomes;
  testing::with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    Outcome outcome = under(strategy, GetParam());
    const std::lock_guard lock(mutex);
    outcomes.push_back(std::move(outcome));
  });
  ASSERT_EQ(outcomes.size(), 2u);
  for (const Outcome& each : outcomes) expect_like(each, wanted_);
}

TEST_P(Layers, LearnAsOnOneDeviceOnParameterServers) {
  Outcome got;
  testing::ServerCluster({.servers = 2}).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const auto scope = strategy.scope();
    const Sequential model = made(GetParam());
    if (strategy.serve()) return;
    got = train(GetParam(), model);
  });
  expect_like(got, wanted_);
}

INSTANTIATE_TEST_SUITE_P(All, Layers, ::testing::ValuesIn(nets()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort::equivalence::layers_test
