// Parameters that the replicas share (stage 3): what is a unit, what may be done with parameters, and where.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <mutex>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "device/identity.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"
#include "wings/sharding/step/parameter_units.h"

namespace cohort::shared_parameters_test {
namespace {

using testing::expect_error;
using testing::with_workers;
using testing::WorkersOptions;

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

torch::nn::Linear layer() {
  return torch::nn::Linear(3, 3);
}

// A stem, a container of two blocks, each with layers inside, and a head.
struct NetImpl : torch::nn::Module, ShardingUnits {
  explicit NetImpl(std::vector<std::string> named = {}) : units(std::move(named)) {
    stem = register_module("stem", layer());
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 2; ++i) blocks->push_back(torch::nn::Sequential(layer(), layer()));
    head = register_module("head", layer());
    scale = register_parameter("scale", torch::ones({3}));
  }
  std::vector<std::string> sharding_units() const override { return units; }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::tanh(stem(x));
    for (std::size_t i = 0; i < 2; ++i) y = torch::tanh(blocks->ptr<torch::nn::SequentialImpl>(i)->forward(y));
    return head(y) * scale;
  }
  std::vector<std::string> units;
  torch::nn::Linear stem{nullptr}, head{nullptr};
  torch::nn::ModuleList blocks;
  torch::Tensor scale;
};
TORCH_MODULE(Net);

// Returns the units' parameters by name, one text a unit.
std::vector<std::string> units_of(const torch::nn::Module& module, int64_t min_bytes) {
  const auto unit_of = parameter_units(module, min_bytes);
  std::vector<std::string> units;
  for (const auto& item : module.named_parameters()) {
    const std::size_t unit = unit_of.at(tensor_id(item.value()));
    units.resize(std::max(units.size(), unit + 1));
    units[unit] += (units[unit].empty() ? "" : " ") + item.key();
  }
  return units;
}

TEST(ParameterUnits, AreLayersAndBlocks) {
  torch::nn::Sequential layers(layer(), torch::nn::Tanh(), layer());
  EXPECT_EQ(units_of(*layers, 0), (std::vector<std::string>{"0.weight 0.bias", "2.weight 2.bias"}));
  EXPECT_EQ(units_of(*layers, 1000), (std::vector<std::string>{"0.weight 0.bias 2.weight 2.bias"}));

  // The children of a plain container are blocks, whatever they have inside.
  torch::nn::Module root;
  const auto blocks = root.register_module("blocks", std::make_shared<torch::nn::Module>());
  struct Block : torch::nn::Module {
    Block() {
      register_module("a", layer());
      register_module("b", layer());
    }
  };
  blocks->register_module("0", std::make_shared<Block>());
  blocks->register_module("1", std::make_shared<Block>());
  root.register_module("head", layer());
  root.register_parameter("scale", torch::ones({3}));
  EXPECT_EQ(units_of(root, 0),
            (std::vector<std::string>{"scale", "blocks.0.a.weight blocks.0.a.bias blocks.0.b.weight blocks.0.b.bias",
                                      "blocks.1.a.weight blocks.1.a.bias blocks.1.b.weight blocks.1.b.bias",
                                      "head.weight head.bias"}));
  // The first one, of 12 bytes, is put together with the next, and the last one, of 48, with that before.
  EXPECT_EQ(units_of(root, 60).size(), 2);
}

// A stem and a list of two layers, without names of units.
struct PlainImpl : torch::nn::Module {
  PlainImpl() {
    register_module("stem", stem);
    register_module("blocks", torch::nn::ModuleList(layer(), layer()));
  }
  torch::Tensor forward(const torch::Tensor& x) { return stem(x); }
  torch::nn::Linear stem = layer();
};
TORCH_MODULE(Plain);

// What is around a model is no list of layers: the model has them.
TEST(ParameterUnits, OfAWrapperAreThoseOfWhatItWraps) {
  const Plain net;
  EXPECT_EQ(units_of(*net, 0).size(), 3);
  EXPECT_EQ(units_of(*torch::nn::Sequential(net), 0).size(), 3);
  EXPECT_EQ(units_of(*torch::nn::Sequential(torch::nn::Flatten(), net, torch::nn::Tanh()), 0).size(), 3);
  EXPECT_EQ(units_of(*torch::nn::Sequential(net, layer()), 0).size(), 2) << "here it is a layer";
}

// A model around another one that names its units.
struct AroundImpl : torch::nn::Module, ShardingUnits {
  explicit AroundImpl(bool whole) : is_whole(whole) {
    register_module("net", Net(std::vector<std::string>{"blocks"}));
    register_module("last", layer());
  }
  std::vector<std::string> sharding_units() const override {
    return is_whole ? std::vector<std::string>{"net"} : std::vector<std::string>{};
  }
  bool is_whole;
};

TEST(ParameterUnits, OfANamedModuleAreWholeWhateverItNamesItself) {
  EXPECT_EQ(units_of(AroundImpl(/*whole=*/true), 0).size(), 2);   // net, last
  EXPECT_EQ(units_of(AroundImpl(/*whole=*/false), 0).size(), 5);  // scale, stem, blocks, head, last
}

TEST(ParameterUnits, AreWhatAModuleNames) {
  EXPECT_EQ(units_of(*Net(std::vector<std::string>{"blocks"}), 0).size(), 4);  // scale, stem, blocks, head
  EXPECT_EQ(units_of(*Net(std::vector<std::string>{}), 0).size(), 7);          // the four layers of the blocks
  expect_error<NotFound>([] { (void)parameter_units(*Net(std::vector<std::string>{"tail"}), 0); },
                         "names the unit \"tail\", but its children are {stem, blocks, head}");
}

Strategy mirrored(int replicas, ShardingOptions sharding = {.stage = 3, .min_unit_bytes = 0}) {
  return MirroredStrategy({.devices = cpu_devices(replicas), .sharding = sharding});
}

Mirrored<Net> net_of(const Strategy& strategy) {
  return strategy.mirror([] {
    Net net;
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& p : net->parameters()) p.copy_(torch::sin(torch::arange(p.numel())).view_as(p));
    net->to(torch::kDouble);
    return net;
  });
}

void step(const Strategy& strategy, const Mirrored<Net>& net, const MirroredOptimizer& optimizer) {
  strategy.run([&](Replica& replica) {
    const torch::Tensor x = torch::full({2, 3}, 0.5 + replica.id(), torch::kDouble);
    optimizer[replica].minimize(replica.global_mean(net[replica]->forward(x).square().sum(1)));
  });
}

void expect_close(const NamedTensors& got, const NamedTensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(torch::allclose(got[i].second, wanted[i].second, 0, 1e-12)) << got[i].first;
  }
}

TEST(SharedParameters, MayNotBeChangedInPlace) {
  const Strategy strategy = mirrored(2);
  const auto net = net_of(strategy);
  const auto optimizer = strategy.optimizer(net, SGD());
  step(strategy, net, optimizer);
  const auto clamp = [&](Replica& replica) {
    const torch::NoGradGuard no_grad;
    net[replica]->stem->weight.clamp_(-1, 1);
  };
  expect_error<FailedPrecondition>([&] { strategy.run(clamp); },
                                   "aten::clamp_ was to change a parameter of the unit of");
  step(strategy, net, optimizer);
}

// Layers are frozen and set free between optimizers, and parameters are read in between.
TEST(SharedParameters, GoFromOneOptimizerToTheNext) {
  std::vector<NamedTensors> ends;
  for (const int stage : {0, 3}) {
    const Strategy strategy =
        mirrored(3, stage == 3 ? ShardingOptions{.stage = 3, .min_unit_bytes = 0} : ShardingOptions());
    const auto net = net_of(strategy);
    {
      const auto first = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
      step(strategy, net, first);
    }
    for (const auto& copy : net.copies()) copy->named_children()["stem"]->parameters()[1].set_requires_grad(false);
    const auto second = strategy.optimizer(net, Adam({.learning_rate = 0.1, .ema = {.use_ema = true}}));
    EXPECT_EQ(second.parameter_names().size(), net[std::size_t{0}]->parameters().size() - 1);
    step(strategy, net, second);
    step(strategy, net, second);
    // Any replica's parameters are read outside run(), where all parts are in this process.
    EXPECT_TRUE(torch::equal(net[std::size_t{0}]->head->weight.detach().clone(),
                             net[std::size_t{1}]->head->weight.detach().clone()));
    second.finalize_variable_values();
    ends.push_back(net.state());
    for (auto& [name, tensor] : ends.back()) tensor = tensor.clone();
  }
  expect_close(ends[1], ends[0]);
}

TEST(SharedParameters, AreThereAfterTheirOptimizer) {
  const Strategy strategy = mirrored(2);
  const auto net = net_of(strategy);
  std::optional<MirroredOptimizer> optimizer = strategy.optimizer(net, SGD());
  step(strategy, net, *optimizer);
  const NamedTensors before = net.state();
  optimizer.reset();
  compare_copies(net);
  expect_close(net.state(), before);
  const torch::NoGradGuard no_grad;
  const auto results = strategy.run([&](Replica& replica) {
    return net[replica]->forward(torch::ones({2, 3}, torch::kDouble));
  });
  EXPECT_TRUE(torch::equal(results.values()[0], results.values()[1]));
  net.load_state({{"scale", torch::zeros({3}, torch::kDouble)}}, /*strict=*/false);
  EXPECT_EQ(net[std::size_t{1}]->forward(torch::ones({2, 3}, torch::kDouble)).abs().max().item<double>(), 0.0);
}

// Two units are there at once, or all of them until backward.
TEST(SharedParameters, AreFreedAfterUse) {
  for (const bool reshard : {true, false}) {
    const MirroredStrategy strategy(
        {.devices = cpu_devices(2), .sharding = {.stage = 3, .reshard_after_forward = reshard, .min_unit_bytes = 0}});
    const auto net = strategy.mirror([] {
      torch::nn::Sequential layers;
      for (int i = 0; i < 8; ++i) layers->push_back(torch::nn::Linear(torch::nn::LinearOptions(16, 16).bias(false)));
      return layers;
    });
    const auto optimizer = strategy.optimizer(net, SGD());
    strategy.run([&](Replica& replica) {
      optimizer[replica].minimize(replica.global_mean(net[replica]->forward(torch::ones({2, 16})).sum(1)));
    });
    const int64_t layer = 16 * 16 * 4;
    EXPECT_EQ(optimizer.state_bytes().parameters, 8 * layer / 2 + (reshard ? 2 : 8) * layer);
  }
}

TEST(SharedParameters, OfModulesFromPythonAreRefused) {
  torch::jit::Module script("__torch__.Half");
  script.register_parameter("weight", torch::ones({2}), /*is_buffer=*/false);
  script.define("def forward(self, x):\n  return x * self.weight\n");
  const Strategy strategy = mirrored(2);
  const auto net = strategy.mirror(script);
  expect_error<Unimplemented>([&] { (void)strategy.optimizer(net, SGD()); }, "the module is a module from Python's");
}

// The chief alone loads; the others get it. Outside run() nobody gathers by chance.
TEST(SharedParameters, OfWorkersAreReadInsideRunOrByState) {
  WorkersOptions group{.workers = 2};
  group.sharding = {.stage = 3, .min_unit_bytes = 0};
  group.communication.overlap = true;
  std::mutex mutex;
  with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto net = net_of(strategy);
    const auto optimizer = strategy.optimizer(net, Adam());
    for (int i = 0; i < 4; ++i) step(strategy, net, optimizer);
    const NamedTensors before = net.state();
    if (strategy.worker_rank() == 0) {
      net.load_state({{"head.bias", torch::full({3}, 7.0, torch::kDouble)}}, /*strict=*/false);
    }
    net.copy_from_chief();
    const NamedTensors after = net.state();
    const auto seen = strategy.run([&](Replica& replica) { return net[replica]->head->bias.detach().clone(); });
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < after.size(); ++i) {
      const bool loaded = after[i].first == "head.bias";
      EXPECT_TRUE(torch::equal(after[i].second, loaded ? seen.values()[0] : before[i].second)) << after[i].first;
    }
    EXPECT_EQ(seen.values()[0].sum().item<double>(), 21.0);
    expect_error<FailedPrecondition>([&] { (void)(net[std::size_t{0}]->stem->weight + 1); },
                                     "was used outside run(), but its parts are with several workers");
  });
}

}  // namespace
}  // namespace cohort::shared_parameters_test
