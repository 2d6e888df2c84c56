// Tied weights: a tensor that is registered under two names, and a submodule that is, train as if they had one name,
// under every strategy.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <set>
#include <sstream>

#include "cohort/cohort.h"
#include "tests/equivalence/runs.h"
#include "tests/support/files.h"
#include "tests/support/server_cluster.h"
#include "tests/support/workers.h"

namespace cohort::equivalence::tied_weights_test {
namespace {

struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const torch::Tensor& shared) { weight = register_parameter("weight", shared); }
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(weight).slice(1, 0, kClasses); }
  torch::Tensor weight;
};
TORCH_MODULE(Head);

// An autoencoder's shape. If there is only one name, the head's parameter and the second use of "inner" are not
// registered.
struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(bool two_names) {
    encoder = register_module("encoder", torch::nn::Linear(torch::nn::LinearOptions(kFeatures, 9).bias(false)));
    inner = register_module("inner", torch::nn::Linear(9, 9));
    head = Head(encoder->weight);
    if (two_names) {
      register_module("again", inner);
      register_module("head", head);
    }
    to(torch::kDouble);
    // The values come from a generator of their own: workers are threads here.
    auto generator = at::detail::createCPUGenerator(1);
    const torch::NoGradGuard no_grad;
    for (torch::Tensor* each : {&encoder->weight, &inner->weight, &inner->bias}) {
      each->copy_(torch::randn(each->sizes(), generator, torch::kDouble) * 0.4);
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor once = torch::tanh(inner->forward(torch::tanh(encoder->forward(x))));
    return head->forward(torch::tanh(inner->forward(once)));
  }
  torch::Tensor flat() const {
    return torch::cat(
        {encoder->weight.detach().reshape({-1}), inner->weight.detach().reshape({-1}), inner->bias.detach()});
  }
  torch::nn::Linear encoder{nullptr}, inner{nullptr};
  Head head{nullptr};
};
TORCH_MODULE(Tied);

torch::Tensor losses_of(Tied& net, const Example& share) {
  return torch::nn::functional::cross_entropy(net->forward(share.x), share.y,
                                              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}

void expect_tied(const Mirrored<Tied>& net) {
  for (const auto& copy : net.copies()) {
    const auto parameters = copy->named_parameters();
    EXPECT_TRUE(parameters["head.weight"].is_same(parameters["encoder.weight"]));
    EXPECT_TRUE(parameters["again.bias"].is_same(parameters["inner.bias"]));
  }
}

torch::Tensor train(const Strategy& strategy, const Optimizer& rule, bool two_names,
                    const std::vector<Example>& batches) {
  const auto scope = strategy.scope();
  auto net = strategy.mirror([&] { return Tied(two_names); });
  auto optimizer = strategy.optimizer(net, rule);
  EXPECT_EQ(optimizer.parameter_names(), (std::vector<std::string>{"encoder.weight", "inner.weight", "inner.bias"}));
  for (const Example& batch : batches) {
    strategy.run(
        [&](Replica& replica, const Example& share) {
          optimizer[replica].minimize(replica.global_mean(losses_of(net[replica], share)));
        },
        split(batch, strategy.num_local_replicas()));
  }
  if (two_names) expect_tied(net);
  for (std::size_t r = 1; r < net.copies().size(); ++r) EXPECT_TRUE(torch::equal(net[r]->flat(), net[0]->flat()));
  return net[0]->flat();
}

template <typename TorchOptimizer>
torch::Tensor by_libtorch(const std::function<TorchOptimizer(std::vector<torch::Tensor>)>& make,
                          const std::vector<Example>& batches) {
  Tied net(false);
  TorchOptimizer optimizer = make(net->parameters());
  for (const Example& batch : batches) {
    optimizer.zero_grad();
    losses_of(net, batch).mean().backward();
    optimizer.step();
  }
  return net->flat();
}

TEST(TiedWeights, TrainAsUnderLibTorch) {
  const std::vector<Example> batches = global_batches(torch::kDouble, true);
  const torch::Tensor adam = by_libtorch<torch::optim::Adam>(
      [](auto parameters) { return torch::optim::Adam(parameters, torch::optim::AdamOptions(0.01)); }, batches);
  const torch::Tensor sgd = by_libtorch<torch::optim::SGD>(
      [](auto parameters) {
        return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-2));
      },
      batches);
  for (const int replicas : {1, 3}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const Optimizer ours = Adam({.learning_rate = 0.01, .epsilon = 1e-8, .formulation = Formulation::kTorch});
    EXPECT_LT(distance(train(strategy, ours, true, batches), adam), 1e-9);
    const Optimizer rule =
        SGD({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-2, .formulation = Formulation::kTorch});
    EXPECT_LT(distance(train(strategy, rule, true, batches), sgd), 1e-9);
  }
}

class TiedUnder : public ::testing::TestWithParam<Case> {};

// Returns the rules that see more of a parameter than its elements: its name, its norm, or the norm of all gradients.
std::vector<Rule> rules_of_wholes() {
  std::vector<Rule> wholes = rules();
  std::erase_if(wholes, [](const Rule& rule) {
    static const std::set<std::string> names = {"adamw", "adafactor", "lamb", "lars", "clipped", "clipnorm"};
    return !names.contains(rule.name);
  });
  return wholes;
}

// Weight decay, trust ratios and the norm of all gradients see the parameter once.
TEST_P(TiedUnder, TwoNamesAreAsOne) {
  const std::vector<Example> batches = global_batches(torch::kDouble, true);
  const Strategy strategy = GetParam().make();
  for (const Rule& rule : GetParam().name == "mirrored_3_auto" ? rules() : rules_of_wholes()) {
    const torch::Tensor one = train(strategy, rule.make(), false, batches);
    const torch::Tensor two = train(strategy, rule.make(), true, batches);
    EXPECT_TRUE(torch::equal(one, two)) << rule.name;
  }
}

// Four replicas tie no tensors in another way than three.
std::vector<Case> small_cases() {
  std::vector<Case> small = cases();
  std::erase_if(small, [](const Case& each) { return each.name.find("_4") != std::string::npos; });
  return small;
}

INSTANTIATE_TEST_SUITE_P(All, TiedUnder, ::testing::ValuesIn(small_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(TiedWeights, WeightDecayIsExcludedByAnyOfTheNames) {
  const std::vector<Example> batches = global_batches(torch::kDouble, false);
  const DefaultStrategy strategy;
  const auto rule = [](const char* excluded) {
    return AdamW({.learning_rate = 0.01, .weight_decay = 0.1, .exclude_from_weight_decay = {excluded}});
  };
  const torch::Tensor wanted = train(strategy, rule("encoder"), true, batches);
  EXPECT_TRUE(torch::equal(train(strategy, rule("head"), true, batches), wanted));
  EXPECT_FALSE(torch::equal(train(strategy, rule("nothing"), true, batches), wanted));
}

TEST(TiedWeights, UnderSeveralWorkersWithAndWithoutOverlap) {
  const std::vector<Example> batches = global_batches(torch::kDouble, true);
  const Optimizer rule = Adam({.learning_rate = 0.01, .gradient = {.global_clipnorm = 0.5}});
  const torch::Tensor wanted = train(OneDeviceStrategy("/CPU:0"), rule, false, batches);
  for (const bool overlap : {false, true}) {
    testing::WorkersOptions group{.workers = 2, .replicas = 2};
    group.communication.overlap = overlap;
    if (overlap) group.communication.bytes_per_pack = 64;
    testing::with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
      std::vector<Example> own;
      for (const Example& batch : batches) {
        const int64_t half = (batch.size() + 1) / 2;
        own.push_back(strategy.worker_rank() == 0 ? batch.rows(0, half) : batch.rows(half, batch.size()));
      }
      EXPECT_LT(distance(train(strategy, rule, true, own), wanted), 1e-9) << "overlap: " << overlap;
    });
  }
}

// fit() on parameter servers: one worker takes the steps of one device, several synchronous ones the same numbers.
TEST(TiedWeights, OnParameterServers) {
  const auto fit = [](const Model& made) {
    Model net = made;
    const torch::Tensor x = torch::sin(torch::arange(50 * kFeatures, torch::kDouble)).view({50, kFeatures});
    net.fit(Dataset::from_tensor_slices(x, torch::arange(50) % kClasses).batch(12),
            {.epochs = 3, .verbose = Verbose::kSilent});
    return net.weights();
  };
  const auto model = [](bool two_names) {
    Model made([=] { return Tied(two_names); });
    made.compile(
        {.optimizer = Adam({.learning_rate = 0.05}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
    return made;
  };
  const NamedTensors wanted = fit(model(false));
  for (const int workers : {1, 2}) {
    testing::ServerClusterOptions cluster{.servers = 2, .workers = workers};
    cluster.strategy.variable_partitioner = FixedShardsPartitioner(2);
    if (workers > 1) cluster.strategy.consistency = {.kind = Consistency::Kind::kSynchronous};
    testing::ServerCluster(cluster).run([&](const ParameterServerOptions& own) {
      const ParameterServerStrategy strategy(own);
      const auto scope = strategy.scope();
      const Model net = model(true);
      if (strategy.serve()) return;
      const NamedTensors got = fit(net);
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].first, wanted[i].first);
        EXPECT_LT(distance(got[i].second, wanted[i].second), 1e-9) << got[i].first;
      }
    });
  }
}

// Two children that have one tensor.
struct TiedPairImpl : torch::nn::Module {
  struct ChildImpl : torch::nn::Module {
    explicit ChildImpl(const torch::Tensor& shared) {
      register_parameter("weight", shared);
      register_parameter("bias", torch::zeros({3}));
    }
  };
  TiedPairImpl() {
    weight = torch::ones({3, 3});
    register_module("first", std::make_shared<ChildImpl>(weight));
    register_module("second", std::make_shared<ChildImpl>(weight));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(weight).matmul(weight.t()); }
  torch::Tensor weight;
};
TORCH_MODULE(TiedPair);

TEST(TiedWeights, CountOnce) {
  const Model model([] { return TiedPair(); });
  EXPECT_EQ(model.count_params(), 9 + 3 + 3);
  EXPECT_EQ(model.layer("second").count_params(), 9 + 3);
  std::ostringstream text;
  model.layer("first").set_trainable(false);
  model.summary(text);
  EXPECT_NE(text.str().find("Total params: 15 "), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("Trainable params: 3 "), std::string::npos) << text.str();
}

// They are frozen in whatever order its layers are frozen and thawed.
TEST(TiedWeights, AreFrozenAsLongAsAnyLayerIs) {
  for (const bool first_again : {false, true}) {
    Model model([] { return TiedPair(); });
    const auto learns = [&](bool first, bool second) {
      model.layer("first").set_trainable(first);
      model.layer("second").set_trainable(second);
      model.compile({.optimizer = SGD(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
      return model.layer("first").weights()[0].second.requires_grad();
    };
    EXPECT_TRUE(learns(true, true));
    EXPECT_FALSE(learns(false, false));
    EXPECT_FALSE(learns(first_again, !first_again));
    EXPECT_TRUE(learns(true, true));
    EXPECT_FALSE(learns(first_again, !first_again));
  }
}

TEST(TiedWeights, GoThroughAFile) {
  const testing::TemporaryFolder folder;
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const Model one([] { return TiedPair(); });
  one.set_weights({{"second.weight", torch::full({3, 3}, 2.0F)}}, /*strict=*/false);
  one.save_weights(folder / "w.safetensors");
  const Weights saved = cohort::load_weights(folder / "w.safetensors");
  EXPECT_EQ(saved.tensors.size(), 3U);
  EXPECT_EQ(saved.metadata.at("second.weight"), "first.weight");
  const Model two([] { return TiedPair(); });
  two.load_weights(folder / "w.safetensors");
  for (const auto& copy : two.module().copies()) {
    const auto parameters = copy->named_parameters();
    EXPECT_TRUE(parameters["first.weight"].is_same(parameters["second.weight"]));
    EXPECT_EQ(parameters["second.weight"][1][1].item<float>(), 2.0F);
  }
  // A file has both names, as PyTorch's state dict has, or one of them, as safetensors.torch.save_model writes it.
  const torch::Tensor weight = torch::full({3, 3}, 3.0F), bias = torch::zeros({3});
  cohort::save_weights(
      folder / "both.safetensors",
      {{"first.weight", weight}, {"second.weight", weight.clone()}, {"first.bias", bias}, {"second.bias", bias}});
  two.load_weights(folder / "both.safetensors");
  cohort::save_weights(folder / "other.safetensors",
                       {{"second.weight", weight + 1}, {"first.bias", bias}, {"second.bias", bias}});
  two.load_weights(folder / "other.safetensors");
  const NamedTensors weights = two.weights();
  EXPECT_EQ(weights[0].first, "first.weight");
  EXPECT_EQ(weights[0].second[0][0].item<float>(), 4.0F);
}

}  // namespace
}  // namespace cohort::equivalence::tied_weights_test
