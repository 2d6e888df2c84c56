// A file that PyTorch wrote (python_net.py): trained under every strategy, saved, resumed, and read by PyTorch again.
// The numbers that PyTorch itself comes to lie beside it.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "cohort/cohort.h"
#include "tests/support/files.h"
#include "tests/support/server_cluster.h"
#include "tests/support/workers.h"

namespace cohort::equivalence::script_file_test {
namespace {

using testing::TemporaryFolder;

constexpr int64_t kInputs = 4;
constexpr int64_t kSteps = 15;
constexpr int64_t kBatch = 12;
const std::filesystem::path kFolder = "tests/equivalence";

using State = std::map<std::string, torch::Tensor>;
using Net = Mirrored<std::shared_ptr<ScriptModule>>;

std::shared_ptr<ScriptModule> net_of_file() {
  return ScriptModule::load(kFolder / "python_net.pt");
}

// Returns the values that python_net.py calls inputs and labels.
Example rows(int64_t count, int64_t first = 0) {
  const torch::Tensor at = torch::arange(first * kInputs, (first + count) * kInputs, torch::kDouble);
  return {.x = torch::sin(at).view({count, kInputs}),
          .y = (torch::arange(first, first + count, torch::kLong) * 7).remainder(5).remainder(3)};
}

State state_of(const std::vector<std::pair<std::string, torch::Tensor>>& list) {
  State state;
  for (const auto& [name, tensor] : list) state[name] = tensor.detach().clone();
  return state;
}

State numbers_of_pytorch(const char* run) {
  State state;
  const auto json = nlohmann::json::parse(testing::read_file(kFolder / "python_net.json"));
  for (const auto& [name, values] : json.at(run).items()) {
    state[name] = torch::tensor(values.get<std::vector<double>>(), torch::kDouble);
  }
  return state;
}

void expect_near(const State& got, const State& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    ASSERT_TRUE(got.contains(name)) << name;
    const torch::Tensor difference =
        got.at(name).to(torch::kDouble).reshape({-1}) - tensor.to(torch::kDouble).reshape({-1});
    EXPECT_LT(difference.abs().max().item<double>(), 1e-9) << name;
  }
}

void expect_equal(const State& got, const State& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) EXPECT_TRUE(torch::equal(got.at(name), tensor)) << name;
}

// Returns the shares of this process' replicas; the last replicas may get less, or nothing.
PerReplica<Example> own_shares(const Strategy& strategy, const Example& batch) {
  const int64_t share = (batch.size() + strategy.num_replicas_in_sync() - 1) / strategy.num_replicas_in_sync();
  const int64_t first = strategy.input_context().input_pipeline_id * strategy.num_local_replicas();
  std::vector<Example> shares;
  for (int64_t r = first; r < first + strategy.num_local_replicas(); ++r) {
    shares.push_back(batch.rows(std::min(batch.size(), r * share), std::min(batch.size(), (r + 1) * share)));
  }
  return PerReplica<Example>(std::move(shares));
}

// Takes the steps from `first` to `last`, each on a global batch of kBatch and the short ones of some steps.
void take_steps(const Strategy& strategy, const Net& net, const MirroredOptimizer& optimizer, int64_t first,
                int64_t last, bool short_ones) {
  for (int64_t step = first; step < last; ++step) {
    const int64_t size = short_ones && step % 4 == 3 ? 1 + step % 7 : kBatch;
    strategy.run(
        [&](Replica& replica, const Example& share) {
          const auto each = torch::nn::functional::cross_entropy(
              net[replica]->forward(share.x), share.y,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          optimizer[replica].minimize(replica.global_mean(each));
        },
        own_shares(strategy, rows(size, step * kBatch)));
  }
}

State after(const Strategy& strategy) {
  const Net net = strategy.mirror(net_of_file()->script());
  take_steps(strategy, net, strategy.optimizer(net, SGD({.learning_rate = 0.2})), 0, kSteps, /*short_ones=*/false);
  return state_of(net.state());
}

TEST(ScriptFile, OneDeviceComesToTheNumbersOfPyTorch) {
  const State wanted = numbers_of_pytorch("alone");
  EXPECT_EQ(wanted.size(), 13U);
  expect_near(after(OneDeviceStrategy("/CPU:0")), wanted);
  expect_near(after(MirroredStrategy({.devices = cpu_devices(1)})), wanted);
  EXPECT_EQ(wanted.at("norm.num_batches_tracked").item<double>(), kSteps);
  EXPECT_GT((wanted.at("norm.running_var") - 1.0).abs().min().item<double>(), 0.1);
}

// Each replica's batch norm sees its share, as that of a process under PyTorch does.
TEST(ScriptFile, TwoReplicasComeToTheNumbersOfPyTorchsTwoParts) {
  const State wanted = numbers_of_pytorch("two");
  expect_near(after(MirroredStrategy({.devices = cpu_devices(2)})), wanted);
  expect_near(after(CentralStorageStrategy({.compute_devices = cpu_devices(2)})), wanted);
  testing::with_workers({.workers = 2},
                        [&](const MultiWorkerMirroredStrategy& strategy) { expect_near(after(strategy), wanted); });
}

// With the statistics of the file every strategy has to take the steps of one device, uneven and empty shares too.
State after_with_fixed_statistics(const Strategy& strategy) {
  const Net net = strategy.mirror(net_of_file()->script());
  for (const auto& copy : net.copies()) copy->named_children()["norm"]->eval();
  take_steps(strategy, net, strategy.optimizer(net, Adam({.learning_rate = 0.01})), 0, kSteps, /*short_ones=*/true);
  return state_of(net.state());
}

TEST(ScriptFile, EveryStrategyTakesTheStepsOfOneDevice) {
  const State wanted = after_with_fixed_statistics(OneDeviceStrategy("/CPU:0"));
  for (const int replicas : {1, 2, 3}) {
    SCOPED_TRACE(c10::str(replicas, " replicas"));
    expect_near(after_with_fixed_statistics(MirroredStrategy({.devices = cpu_devices(replicas)})), wanted);
    expect_near(after_with_fixed_statistics(CentralStorageStrategy({.compute_devices = cpu_devices(replicas)})),
                wanted);
  }
  testing::with_workers({.workers = 2, .replicas = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    expect_near(after_with_fixed_statistics(strategy), wanted);
  });
  EXPECT_TRUE(torch::equal(wanted.at("prior"), state_of(net_of_file()->named_parameters().pairs()).at("prior")))
      << "what is not trained stays";
}

TEST(ScriptFile, ThePartsKeepTheModesOfTheFile) {
  const torch::Tensor x = rows(6).x;
  const auto modes = [](const ScriptModule& net) {
    std::map<std::string, bool> all;
    for (const auto& part : net.named_children()) {
      all[part.key()] = part.value()->is_training();
      EXPECT_EQ(net.script().attr(part.key()).toModule().is_training(), part.value()->is_training()) << part.key();
    }
    return all;
  };
  const auto net = net_of_file();
  const std::map<std::string, bool> written{{"body", true}, {"norm", true}, {"dropout", false}, {"head", true}};
  EXPECT_TRUE(net->is_training());
  EXPECT_EQ(modes(*net), written);
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const Net mirrored = strategy.mirror(net->script());
  for (const auto& copy : mirrored.copies()) {
    EXPECT_EQ(modes(dynamic_cast<const ScriptModule&>(*copy)), written);
  }
  EXPECT_TRUE(torch::equal(net->forward(x), net->forward(x))) << "nothing is dropped";
  net->train();
  EXPECT_TRUE(modes(*net).at("dropout"));
  EXPECT_FALSE(torch::equal(net->forward(x), net->forward(x))) << "something is dropped";
  net->eval();
  EXPECT_EQ(modes(*net),
            (std::map<std::string, bool>{{"body", false}, {"norm", false}, {"dropout", false}, {"head", false}}));
  EXPECT_TRUE(torch::equal(net->forward(x), net->forward(x)));
}

// With dropout, whose numbers LibTorch's generator gives: one replica.
TEST(ScriptFile, ATrainingThatIsCutGoesOnWithTheSameBits) {
  for (const bool dropout : {false, true}) {
    SCOPED_TRACE(dropout ? "with dropout" : "two replicas");
    const TemporaryFolder folder;
    const MirroredStrategy strategy({.devices = cpu_devices(dropout ? 1 : 2)});
    const auto begun = [&] {
      const Net net = strategy.mirror(net_of_file()->script());
      if (dropout) net.train();
      return net;
    };
    const auto adam = [&](const Net& net) { return strategy.optimizer(net, Adam({.learning_rate = 0.01})); };
    const auto first_part = [&](const Net& net, const MirroredOptimizer& optimizer) {
      torch::manual_seed(9);
      take_steps(strategy, net, optimizer, 0, 6, /*short_ones=*/false);
    };
    State wanted;
    {
      const Net net = begun();
      const MirroredOptimizer optimizer = adam(net);
      first_part(net, optimizer);
      take_steps(strategy, net, optimizer, 6, kSteps, /*short_ones=*/false);
      wanted = state_of(net.state());
    }
    {
      const Net net = begun();
      const MirroredOptimizer optimizer = adam(net);
      Checkpoint checkpoint(strategy, folder.path(), {.modules = {{"net", net}}, .optimizers = {{"adam", optimizer}}});
      first_part(net, optimizer);
      checkpoint.save({.step = 6});
      checkpoint.wait();
    }
    torch::manual_seed(1);
    const Net net = begun();
    const MirroredOptimizer optimizer = adam(net);
    Checkpoint checkpoint(strategy, folder.path(), {.modules = {{"net", net}}, .optimizers = {{"adam", optimizer}}});
    const auto progress = checkpoint.restore();
    ASSERT_TRUE(progress.has_value());
    take_steps(strategy, net, optimizer, progress->step, kSteps, /*short_ones=*/false);
    expect_equal(state_of(net.state()), wanted);
  }
}

TEST(ScriptFile, PyTorchReadsWhatWasTrained) {
  if (std::system("/usr/bin/python3 -c 'import torch' > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "/usr/bin/python3 has no torch (Debian's python3-torch), so the saved file is not read by PyTorch";
  }
  const TemporaryFolder folder;
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const Net net = strategy.mirror(net_of_file()->script());
  take_steps(strategy, net, strategy.optimizer(net, SGD({.learning_rate = 0.2})), 0, kSteps, /*short_ones=*/false);
  net.synchronize_buffers();
  net[0]->eval();
  net[0]->save_script(folder / "trained.pt");
  const torch::Tensor outputs = net[0]->forward(rows(6).x).detach().contiguous();
  const auto* first = outputs.data_ptr<double>();
  testing::write_file(folder / "outputs.json",
                      nlohmann::json(std::vector<double>(first, first + outputs.numel())).dump());
  const std::string command = "/usr/bin/python3 tests/equivalence/python_net.py check " +
                              (folder / "trained.pt").string() + " " + (folder / "outputs.json").string();
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

TEST(ScriptFile, ParameterServersComeToTheNumbersOfPyTorch) {
  State got;
  State statistics;  // those of the only worker
  testing::ServerCluster({.servers = 2}).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const Net net = strategy.mirror(net_of_file()->script());
    const MirroredOptimizer optimizer = strategy.optimizer(net, SGD({.learning_rate = 0.2}));
    strategy.register_step("train", [&](const std::vector<torch::Tensor>& arguments) -> std::vector<torch::Tensor> {
      const auto step = arguments[0].item<int64_t>();
      take_steps(strategy, net, optimizer, step, step + 1, /*short_ones=*/false);
      statistics = state_of(net.state());
      return {};
    });
    if (strategy.serve()) return;
    const ClusterCoordinator coordinator(strategy);
    for (int64_t step = 0; step < kSteps; ++step) coordinator.schedule("train", {torch::tensor(step)});
    coordinator.join();
    coordinator.pull();
    for (const auto& parameter : net[0]->named_parameters()) got[parameter.key()] = parameter.value().detach().clone();
  });
  ASSERT_EQ(got.size(), 10U);
  for (const char* name : {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}) {
    got[name] = statistics.at(name);
  }
  expect_near(got, numbers_of_pytorch("alone"));
}

// fit() turns dropout on, so that there are no numbers to compare with: it learns, and evaluates without it.
TEST(ScriptFile, FitOnParameterServersLearns) {
  const Dataset data = Dataset::from_tensor_slices(rows(kSteps * kBatch)).batch(kBatch);
  testing::ServerCluster({.servers = 2}).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const auto scope = strategy.scope();
    Model model(net_of_file()->script());
    model.compile(
        {.optimizer = SGD({.learning_rate = 0.2}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
    if (strategy.serve()) return;
    const History history = model.fit(data, {.epochs = 3, .verbose = Verbose::kSilent});
    EXPECT_LT(history["loss"].back(), history["loss"].front());
    const double loss = model.evaluate(data, {.verbose = Verbose::kSilent})["loss"];
    EXPECT_EQ(model.evaluate(data, {.verbose = Verbose::kSilent})["loss"], loss);
  });
}

}  // namespace
}  // namespace cohort::equivalence::script_file_test
