// Replicas' shares of a loss add up to the loss of the whole batch, and so do their gradients.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include "cohort/dataset.h"
#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "cohort/train/losses.h"
#include "cohort/train/model.h"
#include "tests/support/errors.h"

namespace cohort::loss_share_test {
namespace {

using testing::expect_error;

struct Case {
  Loss loss;
  torch::Tensor y;
  torch::Tensor prediction;
  bool takes_examples = true;  // weights and masks of examples
};

torch::Tensor drawn(std::vector<int64_t> shape) {
  return torch::rand(shape, torch::kDouble) * 0.8 + 0.1;
}

std::vector<Case> cases(LossReduction reduction) {
  torch::manual_seed(7);
  const torch::Tensor labels = torch::tensor({3, 1, 2, 0, 2, 0, 1}, torch::kLong);
  const torch::Tensor hot = torch::one_hot(labels, 4).to(torch::kDouble);
  const torch::Tensor sequence = torch::randint(4, {7, 3}, torch::kLong);
  const torch::Tensor p = drawn({7, 4});
  return {
      {SparseCategoricalCrossentropy({.from_logits = true, .reduction = reduction}), labels, p},
      {SparseCategoricalCrossentropy({.ignore_class = 2, .reduction = reduction}), labels, p},
      {SparseCategoricalCrossentropy({.from_logits = true, .ignore_class = 1, .reduction = reduction}), sequence,
       drawn({7, 3, 4})},
      {CategoricalFocalCrossentropy({.reduction = reduction}), hot, p},
      {CategoricalFocalCrossentropy({.class_alphas = {0.1, 0.2, 0.3, 0.4}, .reduction = reduction}), hot, p},
      {BinaryCrossentropy({.reduction = reduction}), hot, p},
      {BinaryFocalCrossentropy({.apply_class_balancing = true, .reduction = reduction}), hot, p},
      {CategoricalGeneralizedCrossEntropy({.q = 0.7, .reduction = reduction}), labels, p},
      {MeanSquaredError({.reduction = reduction}), drawn({7, 3, 2}), drawn({7, 3, 2})},
      {LogCosh({.reduction = reduction}), drawn({7, 4}), p},
      {CosineSimilarity({.reduction = reduction}), drawn({7, 4}), p},
      {KLDivergence({.reduction = reduction}), drawn({7, 4}), p},
      {Hinge({.reduction = reduction}), hot, p},
      {Dice({.reduction = reduction}), hot, p},
      {Tversky({.alpha = 0.3, .beta = 0.7, .reduction = reduction}), hot, p},
      {Dice({.axis = {1}, .reduction = reduction}), hot, p},
      {Dice({.axis = {0}, .reduction = reduction}), hot, p, /*takes_examples=*/false},
      {Circle({.gamma = 4.0, .reduction = reduction}), labels, torch::nn::functional::normalize(drawn({7, 5}))},
      {CTC({.reduction = reduction}),
       torch::tensor({1, 2, 0, 3, 0, 0, 2, 2, 1, 1, 3, 2, 2, 0}, torch::kLong).view({7, 2}), drawn({7, 6, 4})},
  };
}

struct Extra {
  torch::Tensor weight;
  torch::Tensor mask;
};

// The value and the gradient of a loss, of the batch as a whole.
std::pair<double, torch::Tensor> whole(const Case& each, const Extra& extra) {
  const torch::Tensor p = each.prediction.clone().requires_grad_();
  const torch::Tensor value = each.loss(each.y, p, extra.weight, extra.mask);
  value.backward();
  return {value.item<double>(), p.grad()};
}

// The same by shares that end at these examples.
std::pair<double, torch::Tensor> shared(const Case& each, const Extra& extra, const std::vector<int64_t>& ends) {
  const MirroredStrategy strategy({.devices = cpu_devices(static_cast<int>(ends.size()))});
  std::vector<Example> shares;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const auto rows = [&](const torch::Tensor& all) { return all.defined() ? all.slice(0, begin, end) : all; };
    shares.push_back({.x = rows(each.prediction), .y = rows(each.y), .weight = rows(extra.weight)});
    shares.back().more = {rows(extra.mask)};
    begin = end;
  }
  struct Found {
    torch::Tensor value, gradient, total;
  };
  const auto found = strategy.run(
      [&](Replica& replica, const Example& share) {
        const torch::Tensor p = share.x.clone().requires_grad_();
        const LossShare loss = each.loss.share(replica, share.y, p, share.weight, share.more[0]);
        loss.value.backward();
        return Found{loss.value.detach(), p.grad(), loss.total.detach()};
      },
      PerReplica<Example>(shares));
  double value = 0.0, total = 0.0;
  std::vector<torch::Tensor> gradients;
  for (const Found& one : found) {
    value += one.value.item<double>();
    total += one.total.item<double>();
    gradients.push_back(one.gradient);
  }
  EXPECT_NEAR(total, value * static_cast<double>(each.prediction.size(0)), 1e-9) << each.loss.name();
  return {value, torch::cat(gradients)};
}

void expect_shares_add_up(LossReduction reduction) {
  const torch::Tensor weight = torch::tensor({0.5, 2.0, 0.0, 1.0, 1.5, 0.25, 3.0}, torch::kDouble);
  const torch::Tensor mask = torch::tensor({1, 1, 0, 1, 0, 1, 1}, torch::kInt).to(torch::kBool);
  for (const Case& each : cases(reduction)) {
    for (const Extra& extra : {Extra{}, Extra{weight, {}}, Extra{{}, mask}, Extra{weight, mask}}) {
      if (!each.takes_examples && (extra.weight.defined() || extra.mask.defined())) continue;
      const auto [value, gradient] = whole(each, extra);
      for (const std::vector<int64_t>& ends : {std::vector<int64_t>{3, 7}, {5, 7, 7}, {0, 7}}) {
        const auto [sum, gradients] = shared(each, extra, ends);
        EXPECT_NEAR(sum, value, 1e-10) << each.loss.name() << " on " << ends.size();
        EXPECT_LT((gradients - gradient).abs().max().item<double>(), 1e-10) << each.loss.name();
      }
    }
  }
}

TEST(LossShareTest, MeansAddUp) {
  expect_shares_add_up(LossReduction::kSumOverBatchSize);
}

TEST(LossShareTest, SumsAddUp) {
  expect_shares_add_up(LossReduction::kSum);
}

TEST(LossShareTest, WeightedMeansAddUp) {
  expect_shares_add_up(LossReduction::kMeanWithSampleWeight);
}

TEST(LossShareTest, NeedsOneNumber) {
  const Loss loss = MeanSquaredError({.reduction = LossReduction::kNone});
  const torch::Tensor y = torch::zeros({2, 3}), p = torch::ones({2, 3});
  EXPECT_EQ(loss(y, p).sizes(), (std::vector<int64_t>{2}));
  const MirroredStrategy strategy({.devices = cpu_devices(1)});
  expect_error<InvalidArgument>(
      [&] { strategy.run([&](Replica& replica) { return loss.share(replica, y, p).value; }); }, "kNone");
  const StrategyScope scope = strategy.scope();
  Sequential model{Dense(3)};
  expect_error<InvalidArgument>([&] { model.compile({.optimizer = SGD(), .loss = loss}); }, "kNone");
}

// Keras averages over the replicas' means: two examples of one replica count as much as the one of another.
TEST(LossShareTest, MeanOfReplicas) {
  const torch::Tensor y = torch::zeros({3}, torch::kDouble), p = torch::tensor({1.0, 2.0, 3.0}, torch::kDouble);
  const std::vector<Example> shares = {{.x = p.slice(0, 0, 2), .y = y.slice(0, 0, 2)},
                                       {.x = p.slice(0, 2, 3), .y = y.slice(0, 2, 3)},
                                       {.x = p.slice(0, 3, 3), .y = y.slice(0, 3, 3)}};
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  const auto sum_of = [&](const Loss& loss, torch::Tensor LossShare::*part) {
    const auto found = strategy.run(
        [&](Replica& replica, const Example& share) { return loss.mean_share(replica, share.y, share.x).*part; },
        PerReplica<Example>(shares));
    return strategy.reduce(ReduceOp::kSum, found).item<double>();
  };
  EXPECT_NEAR(sum_of(MeanSquaredError(), &LossShare::value), (2.5 + 9.0) / 3.0, 1e-12);
  EXPECT_NEAR(sum_of(MeanSquaredError(), &LossShare::total), 1.0 + 4.0 + 9.0, 1e-12);
  EXPECT_NEAR(sum_of(MeanSquaredError({.reduction = LossReduction::kSum}), &LossShare::value), 14.0, 1e-12);
}

// What TensorFlow 2.21 with Keras 3.15 gives for `loss_fn(labels, predictions)` in strategy.run: on two replicas losses
// of 12.5 and 132.5 and a gradient whose sum is (90, 110), which are those of one device.
TEST(LossShareTest, TheLossObjectInAReplicaIsItsPartOfTheMean) {
  const torch::Tensor x = torch::arange(8, torch::kDouble).view({4, 2}), y = torch::ones({4, 1}, torch::kDouble);
  const torch::Tensor start = torch::tensor({1.0, 2.0}, torch::kDouble).view({2, 1});
  const Loss loss = MeanSquaredError();
  EXPECT_EQ(loss(y, x.mm(start)).item<double>(), 145.0);
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto net = strategy.mirror([&] {
    torch::nn::Linear linear(torch::nn::LinearOptions(2, 1).bias(false));
    linear->to(torch::kDouble);
    linear->weight.set_data(start.t().clone());
    return linear;
  });
  const auto optimizer = strategy.optimizer(net, SGD({.learning_rate = 0.01}));
  const auto losses = strategy.run(
      [&](Replica& replica, const Example& share) {
        const torch::Tensor value = loss(share.y, net[replica]->forward(share.x));
        optimizer[replica].minimize(value);
        return value.detach();
      },
      *strategy.distribute(Dataset::from_tensor_slices(x, y).batch(4)).iterator().next());
  EXPECT_EQ(losses[0].item<double>(), 12.5);
  EXPECT_EQ(losses[1].item<double>(), 132.5);
  const torch::Tensor stepped = start.t() - 0.01 * torch::tensor({90.0, 110.0}, torch::kDouble);
  for (const auto& copy : net.copies()) EXPECT_TRUE(torch::allclose(copy->parameters()[0], stepped, 0.0, 1e-12));
  // Outside of the replicas it is a batch's.
  const torch::Tensor whole = strategy.run(
      [&](Replica& replica) { return replica.merge_call([&](const Strategy&) { return loss(y, x.mm(start)); }); })[0];
  EXPECT_EQ(whole.item<double>(), 145.0);
}

// Of every loss, reduction, weight and mask the loss object gives what mean_share() does, whose values are Keras'.
TEST(LossShareTest, EveryLossObjectInAReplicaIsKerasPart) {
  const torch::Tensor weight = torch::tensor({0.5, 2.0, 0.0, 1.0, 1.5, 0.25, 3.0}, torch::kDouble);
  const torch::Tensor mask = torch::tensor({1, 1, 0, 1, 0, 1, 1}, torch::kInt).to(torch::kBool);
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  for (const LossReduction reduction :
       {LossReduction::kSumOverBatchSize, LossReduction::kSum, LossReduction::kMeanWithSampleWeight}) {
    for (const Case& each : cases(reduction)) {
      for (const Extra& extra : {Extra{}, Extra{weight, {}}, Extra{{}, mask}, Extra{weight, mask}}) {
        if (!each.takes_examples && (extra.weight.defined() || extra.mask.defined())) continue;
        const double alone = each.loss(each.y, each.prediction, extra.weight, extra.mask).item<double>();
        const double part = reduction == LossReduction::kSum ? 1.0 : 0.5;
        const auto parts = strategy.run([&](Replica& replica) {
          const auto own = each.loss.mean_share(replica, each.y, each.prediction, extra.weight, extra.mask).value;
          return std::pair(each.loss(each.y, each.prediction, extra.weight, extra.mask).item<double>(),
                           own.item<double>());
        });
        for (const auto& [value, share] : parts) {
          EXPECT_NEAR(value, part * alone, 1e-12) << each.loss.name();
          EXPECT_NEAR(share, part * alone, 1e-12) << each.loss.name();
        }
      }
    }
  }
  const Loss each = MeanSquaredError({.reduction = LossReduction::kNone});
  const torch::Tensor y = torch::zeros({2, 3}), p = torch::full({2, 3}, 2.0);
  EXPECT_TRUE(torch::equal(strategy.run([&](Replica&) { return each(y, p); })[1], torch::full({2}, 4.0)));
}

// A pipeline adds up what it gets for the microbatches, of which a mean does not tell its part.
TEST(LossShareTest, TheLossObjectIsNotForMicrobatches) {
  const PipelineStrategy strategy({.devices = cpu_devices(2), .schedule = Schedule1F1B{.microbatches = 2}});
  const torch::Tensor rows = torch::ones({4, 1});
  const PerReplica<Example> batch({Example{.x = rows, .y = rows}});
  expect_error<Unimplemented>(
      [&] { strategy.run([](const Example& part) { return MeanSquaredError()(part.y, part.x); }, batch); }, "share()");
  const auto sums = strategy.run(
      [](Replica& replica, const Example& part) { return MeanSquaredError().share(replica, part.y, part.x * 3).value; },
      batch);
  EXPECT_EQ(sums[0].item<double>(), 4.0);
}

// The first step of a model whose two replicas have two examples and one.
TEST(LossShareTest, ModelsAverageAsTold) {
  const torch::Tensor x = torch::tensor({1.0, 2.0, 4.0}, torch::kDouble).view({3, 1}), y = torch::zeros_like(x);
  const auto weight_after = [&](LossAverage average) {
    const MirroredStrategy strategy({.devices = cpu_devices(2)});
    const StrategyScope scope = strategy.scope();
    Sequential model({Dense({.units = 1, .use_bias = false})}, {.dtype = torch::kDouble});
    model.build({1});
    model.set_weights({{"dense.weight", torch::ones({1, 1}, torch::kDouble)}});
    model.compile({.optimizer = SGD({.learning_rate = 0.01}), .loss = MeanSquaredError(), .loss_average = average});
    EXPECT_NEAR(model.train_on_batch({.x = x, .y = y})["loss"], 7.0, 1e-12);
    return model.weights()[0].second.item<double>();
  };
  EXPECT_NEAR(weight_after(LossAverage::kGlobalBatch), 1.0 - 0.01 * 2.0 * 7.0, 1e-12);
  EXPECT_NEAR(weight_after(LossAverage::kReplicas), 1.0 - 0.01 * 2.0 * (2.5 + 16.0) / 2.0, 1e-12);
}

// Weights of elements, where the loss is a mean over the last dimension.
TEST(LossReductionTest, WeighsElements) {
  const torch::Tensor y = torch::zeros({2, 2}, torch::kDouble), p = torch::tensor({1.0, 2.0, 3.0, 4.0}).view({2, 2});
  const torch::Tensor weight = torch::tensor({1.0, 0.0, 2.0, 1.0}, torch::kDouble).view({2, 2});
  const auto value = [&](LossReduction reduction) {
    return MeanSquaredError({.reduction = reduction})(y, p.to(torch::kDouble), weight).sum().item<double>();
  };
  EXPECT_DOUBLE_EQ(value(LossReduction::kSumOverBatchSize), (1.0 + 18.0 + 16.0) / 4.0);
  EXPECT_DOUBLE_EQ(value(LossReduction::kSum), (1.0 + 18.0 + 16.0) / 2.0);
  EXPECT_DOUBLE_EQ(value(LossReduction::kMeanWithSampleWeight), (1.0 + 18.0 + 16.0) / 4.0);
  EXPECT_DOUBLE_EQ(value(LossReduction::kNone), (1.0 + 18.0 + 16.0) / 2.0);
}

// A batch of which a mask leaves nothing has a loss and gradients of 0.
TEST(LossReductionTest, NothingLeft) {
  const torch::Tensor p = drawn({3, 4}).requires_grad_();
  const torch::Tensor loss = MeanSquaredError()(drawn({3, 4}), p, {}, torch::zeros({3}, torch::kBool));
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0.0);
  EXPECT_EQ(p.grad().abs().max().item<double>(), 0.0);
}

// A model trains the same on one device and on three, of which one is left without examples by the short last batch.
TEST(LossShareTest, ModelsTrainAlike) {
  torch::manual_seed(9);
  const torch::Tensor x = torch::rand({9, 5}, torch::kDouble);
  const torch::Tensor y = torch::randint(4, {9}, torch::kLong);
  const std::vector<Loss> losses = {SparseCategoricalCrossentropy({.from_logits = true, .ignore_class = 1}), Dice()};
  for (const Loss& loss : losses) {
    std::vector<NamedTensors> weights;
    std::vector<double> logged;
    for (const int replicas : {1, 3}) {
      const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
      const StrategyScope scope = strategy.scope();
      torch::manual_seed(3);
      Sequential model({Dense(4, loss.name() == "dice" ? Activation::kSigmoid : Activation::kLinear)},
                       {.dtype = torch::kDouble});
      model.compile({.optimizer = SGD({.learning_rate = 0.5}), .loss = loss});
      const torch::Tensor target = loss.name() == "dice" ? torch::one_hot(y, 4).to(torch::kDouble) : y;
      const auto data = Dataset::from_tensor_slices(x, target).batch(7);
      const History history = model.fit(data, {.epochs = 4, .verbose = Verbose::kSilent});
      weights.push_back(model.weights());
      logged.push_back(history["loss"].back());
    }
    EXPECT_NEAR(logged[0], logged[1], 1e-12) << loss.name();
    for (std::size_t i = 0; i < weights[0].size(); ++i) {
      const torch::Tensor apart = weights[0][i].second - weights[1][i].second;
      EXPECT_LT(apart.abs().max().item<double>(), 1e-12) << loss.name() << " " << weights[0][i].first;
    }
  }
}

}  // namespace
}  // namespace cohort::loss_share_test
