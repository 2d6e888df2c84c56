// A training step must not wait for the card that it runs on: the host would be late with the next one. On cards of
// CUDA LibTorch sees waits, the stand-in counts its own.
#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <memory>

#include "cohort/cohort.h"
#include "tests/gpu/cards.h"
#include "tests/gpu/cuda_waits.h"
#include "tests/gpu/programs.h"

namespace cohort::waiting_test {
namespace {

using namespace gpu;

TEST(StandIn, HasTensorsThatAreNotTheHosts) {
  if (!stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for";
  const torch::Device card(kCard, 0);
  const torch::Tensor host = torch::arange(6, torch::kFloat).view({2, 3});
  const torch::Tensor there = host.to(card);
  EXPECT_EQ(there.device(), card);
  EXPECT_THROW((void)(there + host), c10::Error);
  EXPECT_THROW((void)(there + host.to(torch::Device(kCard, 1))), c10::Error);
  torch::Tensor row = there[1];
  row.mul_(2);
  EXPECT_TRUE(torch::equal(there.cpu()[1], host[1] * 2));
  EXPECT_TRUE(torch::equal((there.t().contiguous() + 1).cpu(), (there.cpu().t() + 1)));
}

TEST(StandIn, CountsWhatTheHostWaitsFor) {
  if (!stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for";
  const torch::Device card(kCard, 0);
  const torch::Tensor there = torch::ones({4}, card);
  const int64_t before = synchronisations();
  const torch::Tensor sum = (there * 3).sum();
  EXPECT_EQ(synchronisations(), before);
  EXPECT_EQ(sum.item<float>(), 12.0F);
  EXPECT_EQ(synchronisations(), before + 1);
  (void)there.cpu();
  EXPECT_EQ(synchronisations(), before + 2);
  (void)there.masked_select(there > 0);
  (void)there.index({there > 0});
  EXPECT_EQ(synchronisations(), before + 4);
}

// Sees whether the host waits for a card.
class Watch {
 public:
  Watch() { refuse_cuda_waits(true); }
  ~Watch() { refuse_cuda_waits(false); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Returns how often it did so far. With CUDA the operation that waits throws instead.
  int64_t waits() const { return synchronisations() - before_; }

 private:
  int64_t before_ = synchronisations();
  // Where each one comes from.
  std::unique_ptr<TellsSynchronisations> tells_ =
      std::getenv("COHORT_TELL_SYNCHRONISATIONS") == nullptr ? nullptr : std::make_unique<TellsSynchronisations>();
};

std::vector<Program> programs() {
  const auto one = [] { return on(on_cards(1)); };
  const auto two = [] { return on(on_cards(2)); };
  const auto stage = [](int stage) { return [stage] { return on(on_cards(2), {.sharding = {.stage = stage}}); }; };
  const Optimizer sgd = SGD({.learning_rate = 0.1, .momentum = 0.9});
  return {
      {"one_card", 1, one, sgd},
      {"two_cards", 2, two, sgd},
      {"in_buckets", 2, [] { return on(on_cards(2), {.exchange = {.bytes_per_pack = 64}}); }, sgd},
      {"two_replicas_of_one_card", 1, [] { return on(parts_of_one_card()); }, sgd},
      {"clipped_by_global_norm", 2, two, Adam({.learning_rate = 0.1, .gradient = {.global_clipnorm = 0.1}})},
      {"clipped_by_norm", 2, two, Adam({.learning_rate = 0.1, .gradient = {.clipnorm = 0.1}})},
      {"clipped_by_value", 2, two, Adam({.learning_rate = 0.1, .gradient = {.clipvalue = 0.1}})},
      {"accumulated", 2, two, Adam({.learning_rate = 0.1, .gradient = {.gradient_accumulation_steps = 2}})},
      {"averaged", 2, two, AdamW({.learning_rate = 0.1, .ema = {.use_ema = true}})},
      {"with_a_loss_scale", 2, two, Adam({.learning_rate = 0.1, .gradient = {.loss_scale = LossScale{}}})},
      {"lamb", 2, two, LAMB({.learning_rate = 0.1})},
      {"lars", 2, two, LARS({.learning_rate = 0.1})},
      {"adafactor", 2, two, Adafactor({.learning_rate = 0.1})},
      {"sharded_1", 2, stage(1), sgd},
      {"sharded_2", 2, stage(2), sgd},
      {"sharded_3", 2, stage(3), sgd},
      {"sharded_and_clipped", 2, stage(2), Adam({.learning_rate = 0.1, .gradient = {.global_clipnorm = 0.1}})},
      {"sharded_with_a_loss_scale", 2, stage(2), Adam({.learning_rate = 0.1, .gradient = {.loss_scale = LossScale{}}})},
  };
}

class Waiting : public ::testing::TestWithParam<Program> {};

// Steps of one's own with a short last batch, as a program would write them.
TEST_P(Waiting, StepsDoNot) {
  COHORT_NEEDS_PLACES(GetParam().cards);
  const Strategy strategy = GetParam().strategy();
  const auto scope = strategy.scope();
  auto net = strategy.mirror([] { return torch::nn::Sequential(torch::nn::Linear(4, 9), torch::nn::Linear(9, 1)); });
  auto optimizer = strategy.optimizer(net, GetParam().rule);
  const torch::Tensor x = torch::randn({42, 4});
  const DistributedDataset data = strategy.distribute(Dataset::from_tensor_slices(x, x.sum(1, true)).batch(8));
  const auto epoch = [&] {
    for (const GlobalBatch& batch : data) {
      strategy.run(
          [&](Replica& replica, const Example& share) {
            optimizer[replica].minimize(replica.global_mean((net[replica]->forward(share.x) - share.y).square()));
          },
          batch);
    }
  };
  epoch();
  const Watch watch;
  epoch();
  EXPECT_EQ(watch.waits(), 0) << "in 6 steps";
}

// fit() waits at the ends of epochs alone: as often with many steps as with few.
TEST_P(Waiting, StepsOfFitDoNot) {
  if (!stands_in()) GTEST_SKIP() << "no stand-in for cards was asked for";
  const Strategy strategy = GetParam().strategy();
  const auto waits_in = [&](int64_t steps) {
    const auto scope = strategy.scope();
    Sequential model{Conv2D(3, 3, Activation::kRelu), BatchNormalization(), Flatten(), Dropout(0.2), Dense(4)};
    model.compile({.optimizer = GetParam().rule,
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"}});
    const Dataset data =
        Dataset::from_tensor_slices(torch::randn({steps * 8, 1, 6, 6}), torch::randint(4, {steps * 8}, torch::kLong));
    (void)model.fit(data.take(16).batch(8), {.verbose = Verbose::kSilent});
    const Watch watch;
    (void)model.fit(data.batch(8), {.epochs = 2, .verbose = Verbose::kSilent});
    return watch.waits();
  };
  EXPECT_EQ(waits_in(3), waits_in(9));
}

INSTANTIATE_TEST_SUITE_P(All, Waiting, ::testing::ValuesIn(programs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort::waiting_test
