#include "cohort/mirrored.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/optimizer.h"
#include "cohort/parallel/mesh_strategy.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"

namespace cohort::mirrored_module_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

struct NamedTensorsOf {
  std::vector<std::pair<std::string, torch::Tensor>> weights;
  std::vector<std::pair<std::string, torch::Tensor>> slots;
};

TEST(MirroredModule, CopiesStartEqualAndDisturbNoOneElse) {
  torch::manual_seed(3);
  const torch::nn::Linear alone(4, 3);
  const torch::Tensor next = torch::rand({2});
  torch::manual_seed(3);
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  const auto net = strategy.mirror([] { return torch::nn::Linear(4, 3); });
  for (const auto& copy : net.copies()) {
    EXPECT_TRUE(torch::equal(copy->parameters()[0], alone->weight));
  }
  EXPECT_FALSE(net[0]->weight.is_alias_of(net[1]->weight));
  EXPECT_TRUE(torch::equal(torch::rand({2}), next)) << "the copies of other replicas moved the random state";
}

TEST(MirroredModule, CentralStorageKeepsOneCopyOfTheParameters) {
  const CentralStorageStrategy strategy({.compute_devices = cpu_devices(2)});
  auto net = strategy.mirror([] { return torch::nn::Linear(4, 3); });
  EXPECT_EQ(net[0]->weight.data_ptr(), net[1]->weight.data_ptr());
  auto sgd = strategy.optimizer(net, SGD({.learning_rate = 0.5}));
  EXPECT_EQ(net[0]->weight.data_ptr(), net[1]->weight.data_ptr());
}

TEST(MirroredModule, TakesSharedPointersAndRefusesDifferentModules) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto net = strategy.mirror([] { return std::make_shared<torch::nn::LinearImpl>(2, 1); });
  EXPECT_EQ(net[1]->weight.size(1), 2);
  int made = 0;
  EXPECT_THAT(error_of<InvalidArgument>([&] { strategy.mirror([&] { return torch::nn::Linear(2, ++made); }); }),
              HasSubstr("the factory must build the same module each time"));
}

// Counts its calls, of which those of the first replica are to count.
struct CallsImpl final : torch::nn::Module, FirstReplicaBuffers {
  CallsImpl() { calls = register_buffer("calls", torch::zeros({}, torch::kFloat)); }
  bool first_replica_counts() const override { return true; }
  torch::Tensor calls;
};

TEST(MirroredModule, BuffersOfTheFirstReplicaCountWhereAModuleSaysSo) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto net = strategy.mirror([] { return std::make_shared<CallsImpl>(); });
  strategy.run([&](Replica& replica) { net[replica]->calls.fill_(replica.id() + 3); });
  net.synchronize_buffers();
  for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(net[r]->calls.item<float>(), 3.0F);
}

TEST(MirroredModule, BuffersStayPerReplicaAndAreAveragedOnReading) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  auto net = strategy.mirror([] { return torch::nn::BatchNorm1d(2); });
  strategy.run([&](Replica& replica) { net[replica]->forward(torch::full({4, 2}, 10.0 * (replica.id() + 1))); });
  EXPECT_FLOAT_EQ(net[0]->running_mean[0].item<float>(), 1.0F);
  EXPECT_FLOAT_EQ(net[1]->running_mean[0].item<float>(), 2.0F);
  const auto state = net.state();
  for (const auto& [name, tensor] : state) {
    if (name == "running_mean") {
      EXPECT_FLOAT_EQ(tensor[0].item<float>(), 1.5F);
    }
    if (name == "num_batches_tracked") {
      EXPECT_EQ(tensor.item<int64_t>(), 1);
    }
  }
  EXPECT_FLOAT_EQ(net[1]->running_mean[0].item<float>(), 2.0F) << "reading changes nothing";
  net.synchronize_buffers();
  EXPECT_FLOAT_EQ(net[1]->running_mean[0].item<float>(), 1.5F);
}

TEST(MirroredModule, LoadsStateByNameIntoEveryCopy) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto net = strategy.mirror([] { return torch::nn::Linear(2, 1); });
  net.load_state({{"weight", torch::full({1, 2}, 3.0F)}, {"bias", torch::ones({1})}});
  EXPECT_EQ(net[1]->weight[0][1].item<float>(), 3.0F);
  EXPECT_THAT(error_of<NotFound>([&] {
                net.load_state({{"weight", torch::zeros({1, 2})}});
              }),
              HasSubstr("there is no \"bias\""));
  net.load_state({{"weight", torch::zeros({1, 2})}}, /*strict=*/false);
  EXPECT_THAT(
      error_of<NotFound>([&] {
        net.load_state({{"weight", torch::zeros({1, 2})}, {"bias", torch::ones({1})}, {"head", torch::ones({1})}});
      }),
      HasSubstr("the module has no \"head\""));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                net.load_state({{"weight", torch::zeros({2, 2})}, {"bias", torch::ones({1})}});
              }),
              HasSubstr("\"weight\" is Float[2, 2], the module wants Float[1, 2]"));
}

TEST(MirroredOptimizer, PacksWithoutMessagesAreRefused) {
  const auto refuse = [](const Strategy& strategy, const std::string& why) {
    const auto net = strategy.mirror([] { return torch::nn::Linear(2, 1); });
    EXPECT_THAT(error_of<InvalidArgument>([&] { strategy.optimizer(net, SGD()); }), HasSubstr(why));
  };
  refuse(MirroredStrategy({.devices = {"/CPU:0"}, .exchange = {.num_packs = 3}}),
         "num_packs is 3 and bytes_per_pack 0, but there are no messages to pack gradients into: there is one replica");
  refuse(MirroredStrategy({.devices = cpu_devices(2), .exchange = {.bytes_per_pack = 64}}), "add them up in place");
  refuse(CentralStorageStrategy({.compute_devices = cpu_devices(2), .exchange = {.num_packs = 0}}),
         "central_storage: num_packs is 0");
  refuse(MeshStrategy(DeviceMesh({2}, {"sequence"}, cpu_devices(2)), {.exchange = {.num_packs = 3}}),
         "all replicas compute with the same examples");
}

TEST(MirroredOptimizer, StateGoesOnUnderAnotherStrategy) {
  const auto train = [](const Strategy& strategy, int steps, NamedTensorsOf* from, NamedTensorsOf* to) {
    torch::manual_seed(1);
    auto net = strategy.mirror([] { return torch::nn::Linear(3, 2); });
    auto adam = strategy.optimizer(net, Adam({.learning_rate = 0.1}));
    if (from != nullptr) {
      net.load_state(from->weights);
      adam.load_state(from->slots);
    }
    for (int i = 0; i < steps; ++i) {
      strategy.run([&](Replica& replica) {
        adam[replica].minimize(net[replica]->forward(torch::ones({1, 3})).pow(2).sum() /
                               replica.num_replicas_in_sync());
      });
    }
    for (const auto& [name, tensor] : net.state()) to->weights.emplace_back(name, tensor.clone());
    to->slots = adam.state();
  };
  NamedTensorsOf whole;
  NamedTensorsOf half;
  NamedTensorsOf rest;
  train(OneDeviceStrategy("/CPU:0"), 10, nullptr, &whole);
  train(MirroredStrategy({.devices = cpu_devices(2)}), 5, nullptr, &half);
  train(OneDeviceStrategy("/CPU:0"), 5, &half, &rest);
  for (std::size_t i = 0; i < whole.weights.size(); ++i) {
    EXPECT_TRUE(torch::allclose(whole.weights[i].second, rest.weights[i].second, 1e-5, 1e-6));
  }
  EXPECT_EQ(rest.slots[0].second.item<int64_t>(), 10);
  half.slots.pop_back();
  EXPECT_THROW(train(OneDeviceStrategy("/CPU:0"), 1, &half, &rest), NotFound);
}

// Two parameters of a module, made from one tensor by `second`.
struct PairImpl : torch::nn::Module {
  PairImpl(const torch::Tensor& first, const torch::Tensor& second) {
    register_parameter("first", first);
    register_parameter("second", second);
  }
};
TORCH_MODULE(Pair);

TEST(TiedWeights, StandUnderTheirFirstNameAndAreLoadedByAny) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto net = strategy.mirror([] {
    const torch::Tensor weight = torch::ones({3});
    return Pair(weight, weight);
  });
  ASSERT_EQ(net.state().size(), 1U);
  EXPECT_EQ(net.state()[0].first, "first");
  const auto value = [&](std::size_t replica, const char* name) {
    return net[replica]->named_parameters()[name][0].item<float>();
  };
  net.load_state({{"second", torch::full({3}, 2.0F)}});
  EXPECT_EQ(value(1, "first"), 2.0F);
  net.load_state({{"first", torch::full({3}, NAN)}, {"second", torch::full({3}, NAN)}});
  net.load_state({{"first", torch::full({3}, 4.0F)}, {"second", torch::full({3}, 4.0F)}});
  EXPECT_EQ(value(1, "second"), 4.0F);
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                net.load_state({{"first", torch::full({3}, 5.0F)}, {"second", torch::full({3}, 6.0F)}});
              }),
              HasSubstr("\"first\" and \"second\" are one tensor of the module, but the values given for them differ"));
  EXPECT_EQ(value(0, "first"), 4.0F) << "nothing was set";
  EXPECT_THAT(error_of<NotFound>([&] {
                net.load_state({{"first", torch::ones({3})}, {"third", torch::ones({3})}});
              }),
              HasSubstr("the module has no \"third\""));
  EXPECT_THROW(net.load_state({}), NotFound);
}

TEST(TiedWeights, MemoryInCommonWithoutATieIsRefused) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto refusal = [&](const std::function<torch::Tensor(const torch::Tensor&)>& second) {
    return error_of<InvalidArgument>([&] {
      strategy.mirror([&] {
        const torch::Tensor weight = torch::ones({3, 3});
        return Pair(weight, second(weight));
      });
    });
  };
  const std::string said = "the parameter first and the parameter second share memory but are not the same parameter";
  EXPECT_THAT(refusal([](const auto& weight) { return weight.detach(); }), HasSubstr(said));
  EXPECT_THAT(refusal([](const auto& weight) { return weight.detach().slice(0, 1, 2); }), HasSubstr(said));
  EXPECT_THAT(refusal([](const auto& weight) { return weight.detach().slice(1, 1, 2); }), HasSubstr(said));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                strategy.mirror([] {
                  const auto made = std::make_shared<torch::nn::LinearImpl>(2, 1);
                  made->register_buffer("before", made->weight.detach());
                  return made;
                });
              }),
              HasSubstr("the parameter weight and the buffer before share memory"));
  // Made later, it is found when an optimizer is.
  const auto net = strategy.mirror([] { return Pair(torch::ones({2}), torch::ones({2})); });
  net[0]->parameters()[1].set_data(net[0]->parameters()[0].data());
  EXPECT_THAT(error_of<InvalidArgument>([&] { strategy.optimizer(net, SGD()); }), HasSubstr(said));
  // Parts of one tensor that have nothing in common are parameters as any others, also where one lies between another.
  const auto parts = strategy.mirror([] {
    const torch::Tensor whole = torch::ones({3, 4});
    return Pair(whole.slice(1, 0, 2), whole.slice(1, 2, 4));
  });
  EXPECT_EQ(strategy.optimizer(parts, SGD()).parameter_names().size(), 2U);
}

TEST(TiedWeights, AreTheSameOnEveryReplica) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  int made = 0;
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                strategy.mirror([&] {
                  const torch::Tensor weight = torch::ones({3});
                  auto pair = std::make_shared<torch::nn::Module>();
                  pair->register_parameter("first", weight);
                  pair->register_parameter("second", ++made == 1 ? weight : torch::ones({3}));
                  return pair;
                });
              }),
              HasSubstr("the factory must build the same module each time"));
  const torch::Tensor common = torch::ones({3});
  EXPECT_THAT(error_of<InvalidArgument>([&] { strategy.mirror([&] { return Pair(common, torch::ones({3})); }); }),
              HasSubstr("the factory gave replicas 0 and 1 the same tensor for first"));
}

}  // namespace
}  // namespace cohort::mirrored_module_test
