// How cards compute: their switches, the layout of convolutions, the processors that feed them.
#include <gmock/gmock.h>
#include <sched.h>
#include <torch/torch.h>

#include <cstdlib>

#include "cohort/cohort.h"
#include "tests/gpu/cards.h"
#include "tests/support/errors.h"

namespace cohort::compute_on_cards_test {
namespace {

using namespace gpu;

using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;

at::Context& switches() {
  return at::globalContext();
}

TEST(ComputeOnCards, TensorFloat32WantsCardsThatHaveIt) {
  COHORT_NEEDS_CARDS(1);
  if (!stands_in()) GTEST_SKIP() << "real cards may have it";
  expect_error<InvalidArgument>([] { const ComputeScope scope({.tensor_float_32 = true}); },
                                "/physical_device:GPU:0 (stand-in) has compute capability 7.5, wanted 8.0");
  ASSERT_TRUE(switches().allowTF32CuDNN());
  {
    const ComputeScope without({.tensor_float_32 = false});
    EXPECT_FALSE(switches().allowTF32CuDNN());
  }
  EXPECT_TRUE(switches().allowTF32CuDNN());
  ::setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  expect_error<InvalidArgument>([] { const ComputeScope scope({.tensor_float_32 = true}); }, "NVIDIA_TF32_OVERRIDE=0");
  ::unsetenv("NVIDIA_TF32_OVERRIDE");
}

TEST(ComputeOnCards, CudnnHasItsSwitches) {
  COHORT_NEEDS_CARDS(1);
  {
    const Strategy strategy = OneDeviceStrategy(on_cards(1)[0]);
    EXPECT_TRUE(switches().benchmarkCuDNN()) << "of a strategy with cards";
    const ComputeScope compute({.cudnn_benchmark = false, .cudnn_enabled = false});
    EXPECT_FALSE(switches().benchmarkCuDNN());
    EXPECT_FALSE(switches().userEnabledCuDNN());
    const Strategy other = OneDeviceStrategy(on_cards(1)[0]);
    EXPECT_FALSE(switches().benchmarkCuDNN()) << "the program has decided";
  }
  EXPECT_TRUE(switches().userEnabledCuDNN());
  expect_error<InvalidArgument>([] { const ComputeScope scope({.cudnn_benchmark = true, .deterministic = true}); },
                                "cudnn_benchmark and deterministic are both true");
  expect_error<InvalidArgument>([] { const ComputeScope scope({.cudnn_benchmark = true, .cudnn_enabled = false}); },
                                "cudnn_benchmark is true, but cudnn_enabled is false");
}

TEST(ComputeOnCards, InputsOfManyShapesEndTheSearch) {
  COHORT_NEEDS_CARDS(1);
  const Strategy strategy = OneDeviceStrategy(on_cards(1)[0]);
  ASSERT_TRUE(switches().benchmarkCuDNN());
  const auto scope = strategy.scope();
  Sequential model{Conv2D(2, 3), Flatten(), Dense(2)};
  model.compile({.optimizer = SGD({}), .loss = MeanSquaredError()});
  for (int64_t size = 1; size <= 9; ++size) {
    EXPECT_TRUE(switches().benchmarkCuDNN()) << size;
    (void)model.predict(Dataset::from_tensor_slices(torch::randn({size, 1, 4, 4})).batch(size));
  }
  EXPECT_FALSE(switches().benchmarkCuDNN());
}

TEST(ComputeOnCards, AnOperationWithoutADeterministicFormIsNamed) {
  COHORT_NEEDS_CARDS(1);
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
  const ComputeScope compute({.deterministic = true});
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  const Strategy strategy = OneDeviceStrategy(on_cards(1)[0]);
  const std::string said = error_of<Unimplemented>(
      [&] { strategy.run([](Replica& /*replica*/) { at::globalContext().alertNotDeterministic("histc"); }); });
  EXPECT_THAT(said, HasSubstr("ComputeOptions::deterministic (--deterministic) is set"));
  EXPECT_THAT(said, HasSubstr("histc does not have a deterministic implementation"));
}

torch::Tensor trained(const Strategy& strategy, bool channels_last, torch::MemoryFormat wanted) {
  const auto scope = strategy.scope();
  torch::manual_seed(5);
  auto net = strategy.mirror([&] {
    auto made = models::resnet_cifar(1, {.num_classes = 3, .channels_last = channels_last});
    made->to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& each : made->parameters()) {
      if (each.dim() > 1) each.copy_(torch::cos(torch::arange(each.numel(), torch::kDouble)).view(each.sizes()) / 9);
    }
    return made;
  });
  auto optimizer = strategy.optimizer(net, SGD({.learning_rate = 0.05, .momentum = 0.9}));
  const torch::Tensor x = torch::sin(torch::arange(4 * 3 * 8 * 8, torch::kDouble)).view({4, 3, 8, 8});
  const DistributedDataset data = strategy.distribute(Dataset::from_tensor_slices(x, torch::arange(4) % 3).batch(4));
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const GlobalBatch& batch : data) {
      strategy.run(
          [&](Replica& replica, const Example& share) {
            const torch::Tensor logits = net[replica]->forward(share.x);
            optimizer[replica].minimize(replica.global_mean(torch::nn::functional::cross_entropy(
                logits, share.y, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone))));
          },
          batch);
    }
  }
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& each : net[0]->parameters()) {
    if (each.dim() == 4 && each.size(1) > 1 && each.size(2) > 1) {
      EXPECT_TRUE(each.is_contiguous(wanted)) << each.sizes();
    }
    all.push_back(each.detach().cpu().contiguous().view(-1));
  }
  return torch::cat(all);
}

TEST(ComputeOnCards, KernelsOfConvolutionsHaveTheChannelsLast) {
  COHORT_NEEDS_CARDS(1);
  const auto plain = torch::MemoryFormat::Contiguous;
  const torch::Tensor wanted = trained(OneDeviceStrategy("/CPU:0"), true, plain);
  const Strategy card = OneDeviceStrategy(on_cards(1)[0]);
  EXPECT_LT((trained(card, true, torch::MemoryFormat::ChannelsLast) - wanted).abs().max().item<double>(), 1e-9);
  EXPECT_LT((trained(card, false, plain) - wanted).abs().max().item<double>(), 1e-9);
}

// The scores are there only for those who ask for them.
TEST(ComputeOnCards, AttentionIsTheSameWithoutScores) {
  COHORT_NEEDS_CARDS(1);
  const torch::Device card = find_logical_device(on_cards(1)[0]).torch_device;
  const torch::Tensor x = torch::randn({3, 5, 16}).to(card);
  const torch::Tensor mask = torch::tensor({{1, 1, 1, 1, 1}, {1, 1, 1, 0, 0}, {0, 0, 0, 0, 0}}, torch::kBool).to(card);
  for (const bool causal : {false, true}) {
    const auto attention = make_attention({.num_heads = 2, .key_dim = 8, .use_causal_mask = causal}, 16, 16);
    attention->to(card);
    const auto expect_near = [&](const torch::Tensor& got, const AttentionInputs& inputs) {
      const AttentionOutput wanted = attention->attend(inputs);
      EXPECT_TRUE(wanted.scores.defined());
      EXPECT_LT((got - wanted.output).abs().max().item<double>(), 1e-5) << causal;
    };
    expect_near(attention->forward(x), {.query = x, .value = x});
    expect_near(attention->forward_masked(x, mask), {.query = x, .value = x, .query_mask = mask, .value_mask = mask});
  }
}

bool may_run_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_ISSET(processor, &set);
}

TEST(ComputeOnCards, AReplicaRunsNearItsCard) {
  COHORT_NEEDS_CARDS(2);
  if (!stands_in()) GTEST_SKIP() << "what is near is the machine's";
  if (!may_run_on(0) || !may_run_on(1)) GTEST_SKIP() << "needs the processors 0 and 1";
  put_cards_near_processors(true);
  const Strategy strategy = MirroredStrategy({.devices = on_cards(2)});
  put_cards_near_processors(false);
  const auto near = strategy.run([](Replica& replica) {
    return torch::tensor(may_run_on(replica.local_id()) && !may_run_on(1 - replica.local_id()));
  });
  for (std::size_t r = 0; r < 2; ++r) EXPECT_TRUE(near[r].item<bool>()) << r;
  EXPECT_TRUE(may_run_on(0) && may_run_on(1)) << "outside of run() as before";
}

TEST(ComputeOnCards, AreDescribed) {
  COHORT_NEEDS_CARDS(1);
  const DeviceDetails details = get_device_details(list_physical_devices("GPU")[0]);
  EXPECT_FALSE(details.device_name.empty());
  EXPECT_TRUE(details.compute_capability.has_value());
  if (stands_in()) return;
  EXPECT_THAT(details.uuid, ::testing::MatchesRegex("(GPU|MIG)-[0-9a-f-]+"));
  EXPECT_THAT(details.pci_address, ::testing::MatchesRegex("[0-9A-Fa-f:]+\\.[0-9]"));
}

}  // namespace
}  // namespace cohort::compute_on_cards_test
