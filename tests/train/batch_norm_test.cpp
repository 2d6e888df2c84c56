#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/strategy.h"
#include "cohort/train/layers.h"

namespace cohort::batch_norm_test {
namespace {

namespace F = torch::nn::functional;

std::shared_ptr<LayerModule> build(const BatchNormalizationOptions& options, Shape input) {
  return BatchNormalization(options).kind().build({.name = "bn", .input = std::move(input), .dtype = torch::kDouble});
}

torch::Tensor random(std::vector<int64_t> shape) {
  return torch::randn(shape, torch::kDouble);
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.numel() == 0 ? 0.0 : (a - b).abs().max().item<double>();
}

torch::Tensor named(const torch::nn::Module& module, const std::string& name) {
  const auto parameters = module.named_parameters();
  if (const torch::Tensor* found = parameters.find(name)) return *found;
  return module.named_buffers()[name];
}

TEST(BatchNormalizationTest, MatchesTheFunctional) {
  for (const Shape& shape : {Shape{3}, Shape{3, 4}, Shape{3, 4, 5}}) {
    const auto layer = build({.moving_variance = MovingVariance::kTorch}, shape);
    Shape batch = shape;
    batch.insert(batch.begin(), 6);
    torch::Tensor mean = torch::zeros(3, torch::kDouble), var = torch::ones(3, torch::kDouble);
    for (int step = 0; step < 3; ++step) {
      const torch::Tensor x = random(batch) * 3 + 1;
      const auto options = F::BatchNormFuncOptions().training(true).momentum(0.01).eps(1e-3);
      EXPECT_LT(distance(layer->forward(x), F::batch_norm(x, mean, var, options)), 1e-12);
    }
    EXPECT_LT(distance(named(*layer, "running_mean"), mean), 1e-12);
    EXPECT_LT(distance(named(*layer, "running_var"), var), 1e-12);
    EXPECT_EQ(named(*layer, "num_batches_tracked").item<int64_t>(), 3);
    layer->eval();
    const torch::Tensor x = random(batch);
    EXPECT_LT(distance(layer->forward(x), F::batch_norm(x, mean, var, F::BatchNormFuncOptions().eps(1e-3))), 1e-12);
  }
}

TEST(BatchNormalizationTest, TheChannelsAreWhereTheAxisSays) {
  const torch::Tensor x = random({6, 3, 4, 5}) * 3 + 1;
  for (const int64_t axis : {2, 3, -1, -2}) {
    const auto layer = build({.axis = axis}, {3, 4, 5});
    const int64_t channels = x.size(axis);
    const auto first = build({}, {channels, 60 / channels});
    const torch::Tensor moved = x.movedim(axis, 1);
    const torch::Tensor wanted = first->forward(moved.flatten(2)).view(moved.sizes()).movedim(1, axis);
    EXPECT_LT(distance(layer->forward(x), wanted), 1e-12);
    EXPECT_LT(distance(named(*layer, "running_var"), named(*first, "running_var")), 1e-12);
  }
  EXPECT_THROW(BatchNormalization({.axis = 0}), InvalidArgument);
  EXPECT_THROW(BatchNormalization({.axis = 4}).kind().output_shape({.name = "bn", .input = {3, 4, 5}}),
               InvalidArgument);
}

TEST(BatchNormalizationTest, TheMovingVarianceIsTheOneThatWasChosen) {
  for (const Shape& shape : {Shape{3}, Shape{3, 4}, Shape{3, 4, 5}}) {
    Shape batch = shape;
    batch.insert(batch.begin(), 6);
    for (const auto kind : {MovingVariance::kKeras3, MovingVariance::kKeras2, MovingVariance::kTorch}) {
      const auto layer = build({.momentum = 0.9, .moving_variance = kind}, shape);
      const bool unbiased = kind == MovingVariance::kTorch || (kind == MovingVariance::kKeras2 && batch.size() == 4);
      torch::Tensor wanted = torch::ones(3, torch::kDouble);
      for (int step = 0; step < 3; ++step) {
        const torch::Tensor x = random(batch) * 3 + 1;
        layer->forward(x);
        wanted = wanted * 0.9 + x.transpose(0, 1).reshape({3, -1}).var(1, unbiased) * 0.1;
      }
      EXPECT_LT(distance(named(*layer, "running_var"), wanted), 1e-12);
    }
  }
}

TEST(BatchNormalizationTest, AnEmptyBatchAndASingleValueLeaveNoNaN) {
  const auto layer = build({}, {2});
  layer->forward(random({0, 2})).sum().backward();
  EXPECT_EQ(named(*layer, "running_mean").abs().sum().item<double>(), 0.0);
  EXPECT_EQ(named(*layer, "num_batches_tracked").item<int64_t>(), 0);
  EXPECT_EQ(named(*layer, "weight").grad().abs().sum().item<double>(), 0.0);
  const torch::Tensor y = layer->forward(torch::tensor({{2.0, 4.0}}, torch::kDouble));
  EXPECT_EQ(y.abs().sum().item<double>(), 0.0);
  EXPECT_LT(distance(named(*layer, "running_mean"), torch::tensor({0.02, 0.04}, torch::kDouble)), 1e-12);
  EXPECT_LT(distance(named(*layer, "running_var"), torch::tensor({0.99, 0.99}, torch::kDouble)), 1e-12);
}

TEST(BatchNormalizationTest, FrozenUsesWhatItHasLearned) {
  const auto layer = build({}, {3});
  layer->set_frozen(true);
  const torch::Tensor x = random({5, 3}) + 7;
  EXPECT_LT(distance(layer->forward(x), x / std::sqrt(1.0 + 1e-3)), 1e-12);
  EXPECT_EQ(named(*layer, "running_mean").abs().sum().item<double>(), 0.0);
}

TEST(BatchNormalizationTest, CenterAndScaleCanBeLeftOut) {
  const auto layer = build({.center = false, .scale = false}, {3});
  EXPECT_TRUE(layer->parameters().empty());
  EXPECT_EQ(layer->forward(random({4, 3})).size(0), 4);
  EXPECT_THROW(BatchNormalization({.momentum = 1.0}), InvalidArgument);
  EXPECT_THROW(BatchNormalization({.epsilon = 0.0}), InvalidArgument);
  EXPECT_THROW(build({}, {3})->forward(random({4, 2})), InvalidArgument);
}

struct Outcome {
  torch::Tensor outputs, input_gradient, weight_gradient, bias_gradient, running_mean, running_var;
};

// Forward and backward over a batch cut into shares of these sizes, with a loss that couples everything.
Outcome through(const Strategy& strategy, const torch::Tensor& x, const std::vector<int64_t>& sizes, bool scale) {
  const auto layer = strategy.mirror([&] {
    auto module = build({.center = scale, .scale = scale, .synchronized = true}, x.sizes().slice(1).vec());
    const torch::NoGradGuard no_grad;
    for (auto& parameter : module->parameters()) parameter.add_(torch::arange(parameter.numel()) * 0.1);
    return module;
  });
  std::vector<torch::Tensor> shares;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    shares.push_back(x.slice(0, begin, begin + size).clone().requires_grad_());
    begin += size;
  }
  const auto outputs = strategy.run(
      [&](Replica& replica, const torch::Tensor& share) {
        const torch::Tensor y = layer[replica]->forward(share);
        (y.pow(3) + y * (share.detach() - 1e4)).sum().backward();
        return y.detach();
      },
      PerReplica<torch::Tensor>(shares));
  Outcome outcome;
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& share : shares) gradients.push_back(share.grad());
  outcome.outputs = torch::cat(outputs.values());
  outcome.input_gradient = torch::cat(gradients);
  const auto sum_gradients = [&](const std::string& name) {
    torch::Tensor sum;
    for (const auto& copy : layer.copies()) {
      const torch::Tensor gradient = named(*copy, name).grad();
      sum = sum.defined() ? sum + gradient : gradient.clone();
    }
    return sum;
  };
  if (scale) {
    outcome.weight_gradient = sum_gradients("weight");
    outcome.bias_gradient = sum_gradients("bias");
  }
  for (const auto& copy : layer.copies()) {
    EXPECT_TRUE(torch::equal(named(*copy, "running_var"), named(*layer.copies()[0], "running_var")));
  }
  outcome.running_mean = named(*layer.copies()[0], "running_mean");
  outcome.running_var = named(*layer.copies()[0], "running_var");
  return outcome;
}

class SyncBatchNormTest : public ::testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(SyncBatchNormTest, EqualsOneReplicaWithTheWholeBatch) {
  torch::manual_seed(3);
  const std::vector<int64_t>& sizes = GetParam();
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  for (const bool scale : {true, false}) {
    // A large offset: sums of squares would lose all digits here.
    const torch::Tensor x = random({total, 4, 3}) + 1e4;
    const Outcome alone = through(OneDeviceStrategy("/CPU:0"), x, {total}, scale);
    const Outcome together =
        through(MirroredStrategy({.devices = cpu_devices(static_cast<int>(sizes.size()))}), x, sizes, scale);
    EXPECT_LT(distance(alone.outputs, together.outputs), 1e-9);
    EXPECT_LT(distance(alone.input_gradient, together.input_gradient) / alone.input_gradient.abs().max().item<double>(),
              1e-9);
    EXPECT_LT(distance(alone.running_mean, together.running_mean), 1e-9);
    EXPECT_LT(distance(alone.running_var, together.running_var), 1e-9);
    if (!scale) continue;
    EXPECT_LT(
        distance(alone.weight_gradient, together.weight_gradient) / alone.weight_gradient.abs().max().item<double>(),
        1e-9);
    EXPECT_LT(distance(alone.bias_gradient, together.bias_gradient) / alone.bias_gradient.abs().max().item<double>(),
              1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, SyncBatchNormTest,
                         ::testing::Values(std::vector<int64_t>{4, 4}, std::vector<int64_t>{5, 2},
                                           std::vector<int64_t>{3, 3, 1}, std::vector<int64_t>{1, 1, 0},
                                           std::vector<int64_t>{3, 0, 0, 0}));

TEST(SyncBatchNormTest, NoExamplesAnywhereChangeNothing) {
  const Outcome outcome =
      through(MirroredStrategy({.devices = cpu_devices(2)}), torch::zeros({0, 3}, torch::kDouble), {0, 0}, true);
  EXPECT_TRUE(torch::equal(outcome.running_var, torch::ones(3, torch::kDouble)));
  EXPECT_EQ(outcome.weight_gradient.abs().sum().item<double>(), 0.0);
}

TEST(SyncBatchNormTest, WithoutSynchronisationReplicasDiffer) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  for (const auto kind : {ReplicaStatistics::kFirst, ReplicaStatistics::kMean}) {
    const auto layer = strategy.mirror([&] { return build({.replica_statistics = kind}, {2}); });
    strategy.run([&](Replica& replica) { layer[replica]->forward(random({4, 2}) + replica.id()); });
    const torch::Tensor first = named(*layer.copies()[0], "running_mean").clone();
    const torch::Tensor second = named(*layer.copies()[1], "running_mean").clone();
    EXPECT_GT(distance(first, second), 1e-4);
    layer.synchronize_buffers();
    const torch::Tensor wanted = kind == ReplicaStatistics::kFirst ? first : (first + second) / 2;
    for (const auto& copy : layer.copies()) EXPECT_LT(distance(named(*copy, "running_mean"), wanted), 1e-12);
  }
}

}  // namespace
}  // namespace cohort::batch_norm_test
