// Parameters keep to their constraints after each update, alike under every strategy, in fit() and in loops of one's
// own; where that is not built the error says so before training begins.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>

#include "cohort/cohort.h"
#include "tests/support/errors.h"

namespace cohort::constraints_test {
namespace {

using testing::expect_error;

DenseOptions constrained() {
  return {.units = 4,
          .activation = "tanh",
          .kernel_constraint = MinMaxNorm{.min_value = 0.5, .max_value = 0.9, .rate = 0.5},
          .bias_constraint = "non_neg"};
}

Dataset data() {
  const torch::Tensor x = torch::arange(14 * 6, torch::kDouble).view({14, 6}).sin();
  return Dataset::from_tensor_slices({.x = x, .y = torch::arange(14) % 3}).batch(8);
}

// The same steps by hand; weights of the model in their order.
std::vector<torch::Tensor> by_hand(std::vector<torch::Tensor> weights) {
  for (torch::Tensor& weight : weights) weight = weight.detach().clone().requires_grad_();
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const Example& batch : data()) {
      const torch::Tensor hidden = torch::tanh(torch::linear(batch.x, weights[0], weights[1]));
      const torch::Tensor loss =
          torch::nn::functional::cross_entropy(torch::linear(hidden, weights[2], weights[3]), batch.y);
      const auto gradients = torch::autograd::grad({loss}, weights);
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= gradients[i] * 0.5;
      const torch::Tensor norms = weights[0].norm(2, 1, /*keepdim=*/true);  // one for each unit
      weights[0] *= (norms.clamp(0.5, 0.9) * 0.5 + norms * 0.5) / (norms + 1e-7);
      weights[1].clamp_(0);
    }
  }
  return weights;
}

Sequential made() {
  torch::manual_seed(3);
  Sequential model({Dense(constrained()), Dense({.units = 3})}, {.dtype = torch::kDouble});
  model.build({6});
  return model;
}

std::vector<torch::Tensor> values(const Sequential& model) {
  std::vector<torch::Tensor> list;
  for (const auto& [name, value] : model.weights()) list.push_back(value.detach().clone());
  return list;
}

void expect_same(const std::vector<torch::Tensor>& got, const std::vector<torch::Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_LT((got[i] - wanted[i]).abs().max().item<double>(), 1e-9);
}

void expect_constrained(const Strategy& strategy) {
  const auto scope = strategy.scope();
  const Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
  Sequential fitted = made();
  const std::vector<torch::Tensor> wanted = by_hand(values(fitted));
  fitted.compile({.optimizer = SGD({.learning_rate = 0.5}), .loss = loss});
  fitted.fit(data(), {.epochs = 3, .verbose = Verbose::kSilent, .shuffle = false});
  expect_same(values(fitted), wanted);

  Sequential called = made();
  const MirroredOptimizer sgd = strategy.optimizer(called, SGD({.learning_rate = 0.5}));
  const auto step = [&](Replica& replica, const Example& share) {
    const torch::Tensor predictions = called(share.x, {.training = true});
    const torch::Tensor value = replica.global_mean(loss.per_example(share.y, predictions));
    sgd[replica].apply_gradients(sgd[replica].gradients(value));
  };
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const GlobalBatch& batch : strategy.distribute(data())) strategy.run(step, batch);
  }
  expect_same(values(called), wanted);
}

TEST(Constraints, EachReplicaKeepsToThem) {
  expect_constrained(OneDeviceStrategy("/CPU:0"));
  expect_constrained(MirroredStrategy({.devices = cpu_devices(2)}));
  expect_constrained(MirroredStrategy({.devices = cpu_devices(3)}));
  expect_constrained(
      MirroredStrategy({.devices = cpu_devices(2), .exchange = {.cross_device_ops = "reduction_to_one_device"}}));
  expect_constrained(MultiWorkerMirroredStrategy());
}

TEST(Constraints, StatesMayBeShared) {
  expect_constrained(MirroredStrategy({.devices = cpu_devices(2), .sharding = {.stage = 1}}));
  expect_constrained(MirroredStrategy({.devices = cpu_devices(2), .sharding = {.stage = 2}}));
}

TEST(Constraints, AreRefusedWhereNobodyKeepsToThem) {
  const auto refused = [](const Strategy& strategy, const std::string& part) {
    const auto scope = strategy.scope();
    Sequential model = made();
    expect_error<Error>([&] { (void)strategy.optimizer(model, SGD()); }, "the layer \"dense\" has a constraint");
    expect_error<Error>([&] { (void)strategy.optimizer(model, SGD()); }, part);
  };
  refused(CentralStorageStrategy({.compute_devices = cpu_devices(2)}), "use MirroredStrategy");
  refused(PipelineStrategy({.devices = cpu_devices(2)}), "pipeline");
  const auto scope = MirroredStrategy({.devices = cpu_devices(2), .sharding = {.stage = 3}}).scope();
  Sequential model = made();
  model.compile({.optimizer = SGD(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  expect_error<Unimplemented>([&] { model.fit(data(), {.verbose = Verbose::kSilent}); }, "sharding.stage is 3");
}

TEST(Constraints, AreNotForUpdatesThatAreNotMade) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  const Constraint counting([calls](const torch::Tensor& weight) {
    ++*calls;
    return weight.clone();
  });
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  Sequential model({Dense({.units = 2, .kernel_constraint = counting})}, {.dtype = torch::kDouble});
  model.build({6});
  const MirroredOptimizer sgd = strategy.optimizer(model, SGD({.gradient = {.gradient_accumulation_steps = 2}}));
  for (int call = 0; call < 4; ++call) {
    strategy.run([&](Replica& replica) {
      sgd[replica].minimize(model(torch::ones({2, 6}, torch::kDouble), {.training = true}).sum());
    });
  }
  EXPECT_EQ(*calls, 2 * 2);  // two updates on two replicas
}

TEST(Constraints, SeeParametersAsKerasHasThem) {
  std::vector<std::vector<int64_t>> shapes;
  const Constraint seeing([&](const torch::Tensor& weight) {
    shapes.push_back(weight.sizes().vec());
    return weight.clone();
  });
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  Sequential model({Conv2D({.filters = 4, .kernel_size = {2, 3}, .kernel_constraint = seeing}),
                    DepthwiseConv2D({.kernel_size = {2, 1}, .depth_multiplier = 2, .depthwise_constraint = seeing}),
                    Flatten(), Dense({.units = 5, .kernel_constraint = seeing, .bias_constraint = seeing})});
  model.build({3, 4, 5});
  const MirroredOptimizer sgd = strategy.optimizer(model, SGD());
  strategy.run([&](Replica& replica) {
    sgd[replica].minimize(model(torch::ones({1, 3, 4, 5}), {.training = true}).sum());
  });
  const std::vector<std::vector<int64_t>> wanted = {{2, 3, 3, 4}, {2, 1, 4, 2}, {48, 5}, {5}};
  EXPECT_EQ(shapes, wanted);
}

TEST(Constraints, OptionsThatMakeNoSenseAreErrors) {
  expect_error<InvalidArgument>([] { Constraint(MaxNorm{.max_value = -1.0}); }, "max_value must be 0 or more");
  expect_error<InvalidArgument>([] { Constraint(MinMaxNorm{.rate = 2.0}); }, "rate must be in [0, 1]");
  expect_error<InvalidArgument>([] { Constraint(UnitNorm{.axis = {}}); }, "axis is empty");
  expect_error<NotFound>([] { Constraint("max"); }, "there are max_norm, min_max_norm, non_neg, unit_norm");
  expect_error<InvalidArgument>([] { GRU({.units = 2, .bias_constraint = "unit_norm"}); }, "must be NonNeg");
  expect_error<InvalidArgument>([] { Constraint("unit_norm")(torch::ones({})); }, "the axis 0");
}

}  // namespace
}  // namespace cohort::constraints_test
