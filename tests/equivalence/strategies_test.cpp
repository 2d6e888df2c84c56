// The specification of the library: every synchronous strategy takes the same steps as one device with the same global
// batches, whatever the number of replicas, the split and the way of exchanging gradients.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "cohort/optimizer.h"
#include "cohort/strategy.h"

namespace cohort {
namespace {

constexpr int kSteps = 20;
constexpr int64_t kFeatures = 12;
constexpr int64_t kClasses = 5;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(kFeatures, 31));
    inner = register_module("inner", torch::nn::Linear(31, 17));
    head = register_module("head", torch::nn::Linear(17, kClasses));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head->forward(torch::tanh(inner->forward(torch::relu(hidden->forward(x)))));
  }
  torch::nn::Linear hidden{nullptr}, inner{nullptr}, head{nullptr};
};
TORCH_MODULE(Net);

// The global batches of a run: sizes 12 and, now and then, short ones.
std::vector<Example> global_batches(torch::ScalarType dtype, bool short_ones) {
  torch::manual_seed(11);
  std::vector<Example> batches;
  for (int step = 0; step < kSteps; ++step) {
    int64_t size = 12;
    if (short_ones && step % 5 == 4) size = 7;   // does not divide
    if (short_ones && step % 10 == 9) size = 1;  // leaves shares empty
    batches.push_back(
        {.x = torch::randn({size, kFeatures}, dtype), .y = torch::randint(kClasses, {size}, torch::kLong)});
  }
  return batches;
}

// The first replicas get the larger shares, the last ones perhaps nothing.
PerReplica<Example> split(const Example& batch, int replicas) {
  std::vector<Example> shares;
  const int64_t share = (batch.size() + replicas - 1) / replicas;
  for (int64_t r = 0; r < replicas; ++r) {
    shares.push_back(batch.rows(std::min(batch.size(), r * share), std::min(batch.size(), (r + 1) * share)));
  }
  return PerReplica<Example>(shares);
}

struct Run {
  torch::ScalarType dtype = torch::kDouble;
  bool short_batches = true;
};

// All weights after kSteps, as one vector.
torch::Tensor weights_after(const Strategy& strategy, const Optimizer& rule, const Run& run = {}) {
  torch::manual_seed(5);
  auto net = strategy.mirror([&] {
    Net net;
    net->to(run.dtype);
    return net;
  });
  auto optimizer = strategy.optimizer(net, rule);
  for (const Example& batch : global_batches(run.dtype, run.short_batches)) {
    strategy.run(
        [&](Replica& replica, const Example& share) {
          const auto each = torch::nn::functional::cross_entropy(
              net[replica]->forward(share.x), share.y,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          optimizer[replica].minimize(replica.global_mean(each));
        },
        split(batch, strategy.num_local_replicas()));
  }
  EXPECT_EQ(optimizer.iterations(), kSteps);
  std::vector<torch::Tensor> all;
  for (const auto& copy : net.copies()) {
    std::vector<torch::Tensor> flat;
    for (const auto& parameter : copy->parameters()) flat.push_back(parameter.detach().reshape({-1}).clone());
    all.push_back(torch::cat(flat));
  }
  for (const torch::Tensor& copy : all) EXPECT_TRUE(torch::equal(copy, all[0])) << "the replicas' copies differ";
  return all[0];
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

struct Rule {
  const char* name;
  std::function<Optimizer()> make;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> list = {
      {"sgd", [] { return SGD({.learning_rate = 0.1}); }},
      {"momentum", [] { return SGD({.learning_rate = 0.05, .momentum = 0.9}); }},
      {"nesterov",
       [] { return SGD({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3}); }},
      {"adam", [] { return Adam({.learning_rate = 0.01}); }},
      {"amsgrad", [] { return Adam({.learning_rate = 0.01, .amsgrad = true}); }},
      {"adamw", [] { return AdamW({.learning_rate = 0.01, .exclude_from_weight_decay = {"1d"}}); }},
      {"rmsprop", [] { return RMSprop({.learning_rate = 0.01, .momentum = 0.9, .centered = true}); }},
      {"adagrad", [] { return Adagrad({.learning_rate = 0.05}); }},
      {"lamb", [] { return LAMB({.learning_rate = 0.01, .weight_decay = 0.01, .exclude_from_weight_decay = {"1d"}}); }},
      {"lars", [] { return LARS({.learning_rate = 1.0, .trust_coefficient = 0.01, .weight_decay = 1e-3}); }},
      {"clipped", [] { return Adam({.learning_rate = 0.01, .gradient = {.global_clipnorm = 0.1}}); }},
      {"clipvalue", [] { return SGD({.learning_rate = 0.1, .gradient = {.clipvalue = 0.01}}); }},
      {"cosine", [] { return SGD({.learning_rate = CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 15})}); }},
  };
  return list;
}

struct Case {
  std::string name;
  std::function<Strategy()> make;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> list = [] {
    std::vector<Case> all;
    for (const int replicas : {1, 2, 3, 4}) {
      for (const char* ops : {"auto", "ring", "reduction_to_one_device", "hierarchical_copy"}) {
        all.push_back({c10::str("mirrored_", replicas, "_", ops), [=] {
                         return MirroredStrategy(
                             {.devices = cpu_devices(replicas), .exchange = {.cross_device_ops = ops}});
                       }});
      }
      all.push_back({c10::str("central_storage_", replicas),
                     [=] { return CentralStorageStrategy({.compute_devices = cpu_devices(replicas)}); }});
    }
    for (const int packs : {0, 3}) {
      all.push_back({c10::str("mirrored_2_packs_", packs), [=] {
                       return MirroredStrategy(
                           {.devices = cpu_devices(2),
                            .exchange = {.cross_device_ops = "reduction_to_one_device", .num_packs = packs}});
                     }});
    }
    all.push_back({"off", [] { return DefaultStrategy(); }});
    return all;
  }();
  return list;
}

class Equivalence : public ::testing::TestWithParam<Case> {};

TEST_P(Equivalence, EveryOptimizerInFloat64) {
  for (const Rule& rule : rules()) {
    const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule.make());
    const torch::Tensor together = weights_after(GetParam().make(), rule.make());
    EXPECT_LT(distance(alone, together), 1e-9) << rule.name;
  }
}

TEST_P(Equivalence, MomentumInFloat32) {
  const auto rule = SGD({.learning_rate = 0.05, .momentum = 0.9});
  const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule, {.dtype = torch::kFloat});
  const torch::Tensor together = weights_after(GetParam().make(), rule, {.dtype = torch::kFloat});
  EXPECT_LT(distance(alone, together), 1e-5);
}

TEST_P(Equivalence, TwoRunsAreBitIdentical) {
  const auto rule = Adam({.learning_rate = 0.01});
  const torch::Tensor one = weights_after(GetParam().make(), rule, {.dtype = torch::kFloat});
  const torch::Tensor two = weights_after(GetParam().make(), rule, {.dtype = torch::kFloat});
  EXPECT_TRUE(torch::equal(one, two));
}

INSTANTIATE_TEST_SUITE_P(All, Equivalence, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(EquivalenceTest, WouldNoticeADifferentRate) {
  const torch::Tensor one = weights_after(OneDeviceStrategy("/CPU:0"), SGD({.learning_rate = 0.1}));
  const torch::Tensor other = weights_after(OneDeviceStrategy("/CPU:0"), SGD({.learning_rate = 0.1 + 1e-6}));
  EXPECT_GT(distance(one, other), 1e-9);
}

TEST(EquivalenceTest, MatchesLibTorchsOwnAdam) {
  torch::manual_seed(5);
  Net net;
  net->to(torch::kDouble);
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
  for (const Example& batch : global_batches(torch::kDouble, true)) {
    adam.zero_grad();
    torch::nn::functional::cross_entropy(net->forward(batch.x), batch.y).backward();
    adam.step();
  }
  std::vector<torch::Tensor> flat;
  for (const auto& parameter : net->parameters()) flat.push_back(parameter.detach().reshape({-1}));
  const torch::Tensor ours =
      weights_after(MirroredStrategy({.devices = cpu_devices(2)}), Adam({.learning_rate = 0.01}));
  EXPECT_LT(distance(torch::cat(flat), ours), 1e-9);
}

}  // namespace
}  // namespace cohort
