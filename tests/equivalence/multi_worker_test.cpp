// MultiWorkerMirroredStrategy against one device, for every way of dividing the input, uneven workers included.
#include <torch/torch.h>

#include "cohort/distributed_dataset.h"
#include "tests/equivalence/runs.h"
#include "tests/support/process_ranks.h"
#include "tests/support/workers.h"

namespace cohort::equivalence::multi_worker_test {
namespace {

using testing::has_transport;
using testing::StepRecorder;
using testing::with_workers;
using testing::WorkersOptions;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(kFeatures, 31));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({31})));
    head = register_module("head", torch::nn::Linear(31, kClasses));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head->forward(norm->forward(torch::relu(hidden->forward(x))));
  }
  torch::nn::Linear hidden{nullptr}, head{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Net);

// Threads share LibTorch's generator: whoever draws does it alone.
Net seeded_net(uint64_t seed, torch::ScalarType dtype) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  Net net;
  net->to(dtype);
  return net;
}

// Trains one pass over the dataset and returns the weights.
torch::Tensor train(const Strategy& strategy, const DistributedDataset& data, const Optimizer& rule,
                    torch::ScalarType dtype, StepRecorder* recorder) {
  const auto scope = strategy.scope();
  // Only the chief's values count.
  const uint64_t seed = 5 + static_cast<uint64_t>(strategy.input_context().input_pipeline_id);
  auto net = strategy.mirror([&] { return seeded_net(seed, dtype); });
  auto optimizer = strategy.optimizer(net, rule);
  std::size_t step = 0;
  for (const GlobalBatch& batch : data) {
    const auto losses = strategy.run(
        [&](Replica& replica, const Example& share) {
          if (recorder != nullptr) recorder->add(step, replica.id(), share);
          const auto each = torch::nn::functional::cross_entropy(
              net[replica]->forward(share.x), share.y,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          const auto loss = replica.global_mean(each);
          optimizer[replica].minimize(loss);
          return loss.detach();
        },
        batch);
    const auto loss = strategy.reduce(ReduceOp::kSum, losses).item<double>();
    EXPECT_TRUE(std::isfinite(loss) && loss > 0.0);
    ++step;
  }
  EXPECT_EQ(optimizer.iterations(), static_cast<int64_t>(step));
  // Parameters that the workers share are gathered inside run() alone.
  const auto copies = strategy.run([&](Replica& replica) {
    std::vector<torch::Tensor> flat;
    for (const auto& parameter : net[replica]->parameters()) flat.push_back(parameter.detach().reshape({-1}));
    return torch::cat(flat);
  });
  return copies.values().back();
}

Dataset batches_of(std::vector<Example> batches) {
  return Dataset::from_generator(
      [batches] {
        return [batches, at = std::size_t{0}]() mutable {
          return at < batches.size() ? std::optional(batches[at++]) : std::nullopt;
        };
      },
      {.batched = true});
}

// Trains by every rule in one group of workers. The weights of all workers have to be the same bits, and those of one
// device that is given the same global batches.
void expect_like_one_device(const WorkersOptions& group, const std::vector<Rule>& rules,
                            const std::function<DistributedDataset(const Strategy&)>& input, std::size_t steps,
                            torch::ScalarType dtype = torch::kDouble, double tolerance = 1e-9) {
  std::vector<StepRecorder> recorders(rules.size());
  std::vector<std::vector<torch::Tensor>> weights(rules.size());
  for (auto& each : weights) each.resize(static_cast<std::size_t>(group.workers));
  with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
    for (std::size_t i = 0; i < rules.size(); ++i) {
      weights[i][static_cast<std::size_t>(strategy.worker_rank())] =
          train(strategy, input(strategy), rules[i].make(), dtype, &recorders[i]);
    }
  });
  const OneDeviceStrategy alone("/CPU:0");
  for (std::size_t i = 0; i < rules.size(); ++i) {
    SCOPED_TRACE(rules[i].name);
    const std::vector<Example> batches = recorders[i].global_batches();
    EXPECT_EQ(batches.size(), steps);
    const torch::Tensor expected = train(alone, alone.distribute(batches_of(batches)), rules[i].make(), dtype, nullptr);
    for (const torch::Tensor& each : weights[i]) {
      EXPECT_TRUE(torch::equal(each, weights[i].front())) << "the workers differ";
      EXPECT_LT(distance(each, expected), tolerance);
    }
  }
}

Example columns(int64_t rows, torch::ScalarType dtype, int64_t first = 0) {
  const torch::Tensor at = torch::arange(first, first + rows, dtype).unsqueeze(1);
  return {.x = torch::sin(at * torch::arange(1, kFeatures + 1, dtype)),
          .y = torch::arange(first, first + rows, torch::kLong).remainder(kClasses)};
}

struct Group {
  int workers = 2;
  int replicas = 1;
  int64_t bytes_per_pack = 0;  // 0: gradients leave after backward, in one message
  bool shared_memory = true;   // false: by messages alone
  int stage = 0;               // of sharding
  std::string implementation = "ring";

  bool overlaps() const { return bytes_per_pack > 0 && stage != 1; }  // stage 1 leaves after backward
};

class MultiWorker : public ::testing::TestWithParam<Group> {
 protected:
  void SetUp() override {
    if (!has_transport(GetParam().implementation)) GTEST_SKIP() << "this build has no " << GetParam().implementation;
  }

  WorkersOptions group() const {
    WorkersOptions options{.workers = GetParam().workers, .replicas = GetParam().replicas};
    options.communication.bytes_per_pack = GetParam().bytes_per_pack;
    options.communication.overlap = GetParam().overlaps();
    options.communication.shared_memory = GetParam().shared_memory;
    options.communication.implementation = GetParam().implementation;
    options.sharding.stage = GetParam().stage;
    if (GetParam().stage == 3) {  // the messages are the units, which are layers
      options.sharding.min_unit_bytes = 0;
      options.communication.bytes_per_pack = 0;
    }
    return options;
  }
};

TEST_P(MultiWorker, EveryOptimizerInFloat64) {
  // Where states are shared the other forms of a rule are the same code: strategies_test.cpp has all of them.
  std::vector<Rule> list = GetParam().stage == 0 ? rules() : rules_of_keras();
  for (const Rule& rule : surrounded_rules()) {
    if (GetParam().stage > 0) list.push_back(rule);
  }
  // 12 a step, and a short last batch of 7.
  expect_like_one_device(
      group(), list,
      [](const Strategy& strategy) {
        return strategy.distribute(Dataset::from_tensor_slices(columns(12 * 9 + 7, torch::kDouble)).batch(12));
      },
      10);
}

TEST_P(MultiWorker, MomentumInFloat32) {
  expect_like_one_device(
      group(), {{"momentum", [] { return SGD({.learning_rate = 0.05, .momentum = 0.9}); }}},
      [](const Strategy& strategy) {
        return strategy.distribute(Dataset::from_tensor_slices(columns(12 * 9 + 1, torch::kFloat)).batch(12));
      },
      10, torch::kFloat, 1e-5);
}

// Worker w has w + 1 files of 10: 12 examples a step, until the one with most is done.
TEST_P(MultiWorker, FilesOfUnevenSizesAndExhaustedWorkers) {
  const int workers = GetParam().workers;
  const auto files = [workers](const Strategy&) {
    return Dataset::range(workers).interleave([](Example file) {
      const auto index = file.x.item<int64_t>();
      return Dataset::from_tensor_slices(columns(10 * (index + 1), torch::kDouble, 1000 * index));
    });
  };
  const int64_t longest = 10 * workers;
  const int64_t share = 12 / workers;
  expect_like_one_device(
      group(), {{"adam", [] { return Adam({.learning_rate = 0.01}); }}},
      [&](const Strategy& strategy) {
        return strategy.distribute(files(strategy).batch(12), {.auto_shard = AutoShard::kFile});
      },
      static_cast<std::size_t>((longest + share - 1) / share));
}

TEST_P(MultiWorker, AWorkerWithoutAnyDataTakesPart) {
  expect_like_one_device(
      group(), {{"sgd", [] { return SGD({.learning_rate = 0.1}); }}},
      [](const Strategy& strategy) {
        return strategy.distribute_from_function([](const InputContext& context) {
          const int64_t rows = context.input_pipeline_id == 1 ? 0 : 20;
          return Dataset::from_tensor_slices(columns(rows, torch::kDouble)).batch(4);
        });
      },
      GetParam().replicas == 1 ? 5 : 3);
}

TEST_P(MultiWorker, TwoRunsAreBitIdentical) {
  std::vector<torch::Tensor> weights(2);
  for (torch::Tensor& each : weights) {
    with_workers(group(), [&](const MultiWorkerMirroredStrategy& strategy) {
      const auto data = strategy.distribute(Dataset::from_tensor_slices(columns(100, torch::kFloat)).batch(12));
      const torch::Tensor result = train(strategy, data, Adam({.learning_rate = 0.01}), torch::kFloat, nullptr);
      if (strategy.worker_rank() == 0) each = result;
    });
  }
  EXPECT_TRUE(torch::equal(weights[0], weights[1]));
}

// Two workers of two replicas: the states are shared within each worker, or between the two.
TEST(MultiWorkerMesh, StatesSharedAlongOneOfTwoAxes) {
  for (const auto& [axis, stage] : {std::pair("replica", 1), std::pair("batch", 1), std::pair("batch", 2),
                                    std::pair("replica", 3), std::pair("batch", 3)}) {
    SCOPED_TRACE(c10::str(axis, ", stage ", stage));
    std::vector<std::string> devices;
    for (const int task : {0, 1}) {
      for (const std::string& cpu : cpu_devices(2)) devices.push_back(c10::str("/job:worker/task:", task, cpu));
    }
    WorkersOptions group{.workers = 2, .replicas = 2};
    group.sharding = {.stage = stage, .axis = axis};
    group.mesh = DeviceMesh({2, 2}, {"replica", "batch"}, devices);
    expect_like_one_device(
        group, rules_of_keras(),
        [](const Strategy& strategy) {
          return strategy.distribute(Dataset::from_tensor_slices(columns(12 * 9 + 7, torch::kDouble)).batch(12));
        },
        10);
  }
}

// Sums in groups of groups, which no machine's memory makes: of five, one group of the pairs has three.
TEST(MultiWorkerByLevels, FollowsOneDevice) {
  for (const auto& [algorithm, stage] : {std::pair("tree", 3), std::pair("hierarchical", 1)}) {
    SCOPED_TRACE(c10::str(algorithm, ", stage ", stage));
    WorkersOptions group{.workers = 5};
    group.communication.shared_memory = false;
    group.communication.algorithm = algorithm;
    group.sharding.stage = stage;
    expect_like_one_device(
        group, {{"adam", [] { return Adam({.learning_rate = 0.02}); }}},
        [](const Strategy& strategy) {
          return strategy.distribute(Dataset::from_tensor_slices(columns(12 * 9 + 1, torch::kDouble)).batch(12));
        },
        10);
  }
}

// Gradients that are rounded to a half type on their way; tests/step/exchange/compression_test.cpp has the exact sums.
TEST(MultiWorkerCompression, FollowsOneDevice) {
  for (const auto& [compression, stage] :
       {std::pair("bfloat16", 0), std::pair("float16", 0), std::pair("bfloat16", 2)}) {
    SCOPED_TRACE(c10::str(compression, ", stage ", stage));
    WorkersOptions group{.workers = 3};
    group.communication.shared_memory = false;
    group.exchange.gradient_compression = compression;
    group.sharding.stage = stage;
    expect_like_one_device(
        group, {{"momentum", [] { return SGD({.learning_rate = 0.05, .momentum = 0.9}); }}},
        [](const Strategy& strategy) {
          return strategy.distribute(Dataset::from_tensor_slices(columns(12 * 9 + 1, torch::kFloat)).batch(12));
        },
        10, torch::kFloat, 5e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MultiWorker,
                         ::testing::Values(Group{2, 1}, Group{2, 2}, Group{3, 1}, Group{2, 1, 512}, Group{2, 2, 512},
                                           Group{3, 1, 512}, Group{3, 1, 0, false}, Group{2, 1, 0, true, 1},
                                           Group{2, 2, 512, true, 1}, Group{3, 1, 0, false, 1}, Group{2, 1, 0, true, 2},
                                           Group{2, 2, 512, true, 2}, Group{3, 1, 512, false, 2},
                                           Group{2, 1, 0, true, 3}, Group{2, 2, 0, true, 3}, Group{3, 1, 512, false, 3},
                                           Group{3, 1, 512, false, 0, "gloo"}, Group{2, 2, 512, false, 2, "gloo"},
                                           Group{4, 1, 0, false, 3, "gloo"}),
                         [](const auto& info) {
                           return c10::str(info.param.workers, "_workers_", info.param.replicas, "_replicas",
                                           info.param.overlaps()           ? "_overlapped"
                                           : info.param.bytes_per_pack > 0 ? "_packs"
                                                                           : "",
                                           info.param.shared_memory ? "" : "_messages",
                                           info.param.stage > 0 ? c10::str("_stage_", info.param.stage) : "",
                                           info.param.implementation == "ring" ? "" : "_over_gloo");
                         });

}  // namespace
}  // namespace cohort::equivalence::multi_worker_test
