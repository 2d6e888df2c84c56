// Blocks that are computed again in backward against the same blocks as they are.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "cohort/parallel/pipeline_strategy.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::remat_test {
namespace {

using testing::build;
using testing::Built;
using testing::CountingAllocator;
using testing::expect_close;
using testing::expect_error;
using testing::random;

std::vector<Layer> block() {
  return {Dense(12, Activation::kTanh), BatchNormalization(), Dropout(0.4), Dense(6, Activation::kGelu)};
}

struct Run {
  torch::Tensor y, gradient_of_x;
  NamedTensors gradients, buffers;
  torch::Tensor drawn_next;
};

Run run_of(const Built& layer, const torch::Tensor& input) {
  for (auto& each : layer.module->parameters()) each.mutable_grad() = torch::Tensor();
  torch::manual_seed(9);
  torch::Tensor x = input.clone();
  if (x.is_floating_point()) x.requires_grad_();
  Run run;
  run.y = layer(x);
  run.y.pow(2).sum().backward();
  run.gradient_of_x = x.grad();
  for (const auto& item : layer.module->named_parameters()) run.gradients.emplace_back(item.key(), item.value().grad());
  for (const auto& item : layer.module->named_buffers()) run.buffers.emplace_back(item.key(), item.value().clone());
  run.drawn_next = torch::rand({4}, torch::kDouble);
  return run;
}

void expect_alike(const NamedTensors& got, const NamedTensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) expect_close(got[i].second, wanted[i].second);
}

// Builds both with the same values.
void expect_same_gradients(const std::vector<Layer>& layers, const Shape& input, const torch::Tensor& x) {
  torch::manual_seed(1);
  Built plain = build(layers.front(), input);
  torch::manual_seed(1);
  const Built again = build(layers.back(), input);
  const Run wanted = run_of(plain, x), got = run_of(again, x);
  expect_close(got.y.detach(), wanted.y.detach());
  if (wanted.gradient_of_x.defined()) expect_close(got.gradient_of_x, wanted.gradient_of_x);
  ASSERT_FALSE(wanted.gradients.empty());
  expect_alike(got.gradients, wanted.gradients);
  expect_alike(got.buffers, wanted.buffers);
  expect_close(got.drawn_next, wanted.drawn_next);
}

// A layer that computes others one after the other, as they are.
Layer plain(std::vector<Layer> layers) {
  struct Kind : LayerKind {
    explicit Kind(std::vector<Layer> given) : layers(std::move(given)) {}
    std::string_view type() const override { return "Plain"; }
    std::string_view base_name() const override { return "plain"; }
    Shape output_shape(const BuildContext& context) const override {
      Shape shape = context.input;
      for (const Layer& layer : layers) {
        BuildContext own = context;
        own.input = shape;
        shape = layer.kind().output_shape(own);
      }
      return shape;
    }
    std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
      struct Module : LayerModule {
        torch::Tensor forward(const torch::Tensor& x) override {
          torch::Tensor y = x;
          for (const auto& each : children()) y = std::static_pointer_cast<LayerModule>(each)->forward(y);
          return y;
        }
      };
      auto module = std::make_shared<Module>();
      BuildContext own = context;
      for (const Layer& layer : layers) {
        module->register_module(std::to_string(module->children().size()), layer.kind().build(own));
        own.input = layer.kind().output_shape(own);
      }
      return module;
    }
    std::vector<Layer> layers;
  };
  return Layer(std::make_shared<Kind>(std::move(layers)));
}

TEST(Remat, GradientsBuffersAndRandomNumbersAreThoseOfThePlainBlock) {
  expect_same_gradients({plain(block()), Checkpointed(block())}, {5}, random({7, 5}));
  // A block within a block, and one whose output is its input.
  const std::vector<Layer> nested = {Dense(5), Checkpointed(block()), Dropout(0.3), Dense(3)};
  expect_same_gradients({plain(nested), Checkpointed(nested)}, {5}, random({7, 5}));
  expect_same_gradients({Dense(3), Checkpointed(Dense(3))}, {5}, random({0, 5}));
  expect_same_gradients({plain({Embedding(4, 3), LSTM(5)}), Checkpointed({Embedding(4, 3), LSTM(5)})}, {6},
                        torch::randint(4, {3, 6}, torch::kLong));
}

TEST(Remat, ABlockIsComputedAgainInTheModeOfTheFirstTime) {
  const auto gradient = [](const Layer& layer) {
    torch::manual_seed(1);
    const Built built = build(layer, {6});
    const torch::Tensor x = random({8, 6}).requires_grad_();
    const torch::Tensor y = built(x);
    built.module->eval();
    y.pow(2).sum().backward();
    EXPECT_FALSE(built.module->is_training());
    return x.grad();
  };
  expect_close(gradient(Checkpointed(block())), gradient(plain(block())));
}

TEST(Remat, OneLayerKeepsItsName) {
  const Layer layer = Checkpointed(Dense({.units = 3, .name = "hidden"}));
  EXPECT_EQ(layer.name(), "hidden");
  EXPECT_EQ(build(layer, {5})["weight"].sizes(), (torch::IntArrayRef{3, 5}));
  Sequential model{Checkpointed(Dense(4)), Checkpointed({Dense(3), Dense(2)})};
  model.build({5});
  std::vector<std::string> names;
  for (const auto& [name, value] : model.weights()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"dense.weight", "dense.bias", "checkpointed.dense.weight",
                                             "checkpointed.dense.bias", "checkpointed.dense_1.weight",
                                             "checkpointed.dense_1.bias"}));
}

TEST(Remat, OnlyTheInputIsKept) {
  CountingAllocator::install();
  std::vector<Layer> deep;
  for (int i = 0; i < 8; ++i) deep.push_back(Dense(64, Activation::kTanh));
  const auto kept_by = [](const Layer& layer) {
    const Built built = build(layer, {64});
    const torch::Tensor x = random({256, 64});
    const int64_t before = CountingAllocator::live();
    const torch::Tensor y = built(x);
    return CountingAllocator::live() - before - static_cast<int64_t>(y.nbytes());
  };
  const int64_t activation = 256 * 64 * 8;
  EXPECT_GE(kept_by(plain(deep)), 7 * activation);
  EXPECT_LT(kept_by(Checkpointed(deep)), activation / 16);
}

TEST(Remat, MasksPassThrough) {
  const auto trained = [](bool again) {
    torch::manual_seed(4);
    const std::vector<Layer> inner = {LSTM({.units = 5, .return_sequences = true}), LSTM(4)};
    std::vector<Layer> layers = {Embedding({.input_dim = 6, .output_dim = 3, .mask_zero = true})};
    if (again) {
      layers.push_back(Checkpointed(inner));
    } else {
      layers.insert(layers.end(), inner.begin(), inner.end());
    }
    layers.push_back(Dense(2));
    Sequential model(layers, {.dtype = torch::kDouble});
    model.compile(
        {.optimizer = SGD({.learning_rate = 0.5}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
    const torch::Tensor x = torch::tensor({{1, 2, 0, 0}, {3, 4, 5, 0}, {2, 2, 2, 2}, {5, 0, 0, 0}}, torch::kLong);
    const Dataset data = Dataset::from_tensor_slices(x, torch::tensor({0, 1, 1, 0})).batch(4);
    model.fit(data, {.epochs = 3, .verbose = Verbose::kSilent});
    return model.predict(data);
  };
  expect_close(trained(true), trained(false));
}

// The cast of a tied weight that the block made without gradients must not be taken for the next operation's.
TEST(Remat, WorksUnderAutocast) {
  const auto gradient = [](bool again) {
    torch::manual_seed(2);
    const auto linear = std::make_shared<torch::nn::LinearImpl>(8, 8);
    const torch::Tensor x = torch::randn({4, 8});
    const auto net = [&](const torch::Tensor& in) { return torch::tanh(linear->forward(in)); };
    at::autocast::increment_nesting();
    at::autocast::set_cpu_enabled(true);
    torch::Tensor y = again ? remat(linear, net, x) : net(x);
    y = linear->forward(y);
    at::autocast::set_cpu_enabled(false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    y.to(torch::kFloat).sum().backward();
    return linear->weight.grad().clone();
  };
  const torch::Tensor wanted = gradient(false);
  EXPECT_LT((gradient(true) - wanted).abs().max().item<double>(), 1e-2 * wanted.abs().max().item<double>());
}

TEST(Remat, WhatWouldBeWrongIsRefused) {
  const auto linear = std::make_shared<torch::nn::LinearImpl>(3, 3);
  const torch::Tensor x = torch::randn({2, 3}, torch::requires_grad());
  const torch::Tensor other = torch::ones({3}, torch::requires_grad());
  const auto with_other = [&](const torch::Tensor& in) { return linear->forward(in) * other; };
  expect_error<InvalidArgument>([&] { remat(linear, with_other, x).sum().backward(); },
                                "a tensor of the shape [3] that requires a gradient and is neither its input");
  const auto net = [&](const torch::Tensor& in) { return linear->forward(in); };
  expect_error<Unimplemented>(
      [&] { (void)torch::autograd::grad({remat(linear, net, x).pow(2).sum()}, {x}, {}, {}, /*create_graph=*/true); },
      "second derivatives");
  expect_error<InvalidArgument>([&] { remat(linear, net, x, {.offload = true}); }, "in the host's memory already");
  expect_error<InvalidArgument>([&] { remat(nullptr, net, x); }, "got no module");
  expect_error<InvalidArgument>([] { Checkpointed(std::vector<Layer>()); }, "wants layers, got none");
  expect_error<InvalidArgument>(
      [] {
        Checkpointed({Dense(2), Dense({.units = 2, .trainable = false})});
      },
      "\"dense\" and \"dense_1\" differ in trainable");
}

TEST(Remat, WithoutGradientsItIsThePlainBlock) {
  const Built layer = build(Checkpointed(block()), {5});
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(layer(random({2, 5})).requires_grad());
}

// On replicas whose gradients leave while backward goes on, and which share gradients and parameters.
TEST(Remat, TrainsAlikeOnReplicas) {
  const auto trained = [](const MirroredOptions& options, bool again) {
    const MirroredStrategy strategy(options);
    strategy.set_seed(5);
    const auto scope = strategy.scope();
    torch::manual_seed(6);
    std::vector<Layer> inner = {Dense(16, Activation::kRelu), Dropout(0.2), Dense(8, Activation::kTanh)};
    Sequential model({plain(inner), Dense(3)}, {.dtype = torch::kDouble});
    if (again) model = Sequential({Checkpointed(plain(inner)), Dense(3)}, {.dtype = torch::kDouble});
    model.compile(
        {.optimizer = Adam({.learning_rate = 0.01}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
    torch::manual_seed(7);
    const Dataset data = Dataset::from_tensor_slices(random({33, 4}), torch::randint(3, {33}, torch::kLong)).batch(8);
    model.fit(data, {.epochs = 3, .verbose = Verbose::kSilent});
    return model.weights();
  };
  for (const int stage : {0, 2, 3}) {
    MirroredOptions options{.devices = cpu_devices(2)};
    options.sharding.stage = stage;
    if (stage == 3) options.sharding.min_unit_bytes = 0;
    const NamedTensors got = trained(options, true), wanted = trained(options, false);
    expect_alike(got, wanted);
  }
}

TEST(Remat, APipelineRefusesIt) {
  const PipelineStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  Sequential model{Checkpointed(Dense(4)), Stage(), Dense(2)};
  model.compile({.optimizer = SGD(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  const Dataset data = Dataset::from_tensor_slices(torch::randn({8, 3}), torch::randint(2, {8}, torch::kLong)).batch(8);
  expect_error<Unimplemented>(
      [&] { model.fit(data, {.verbose = Verbose::kSilent}); },
      "a block is Checkpointed and a stage of a pipeline computes it, which do not go together");
}

TEST(Remat, ASharedGeneratorCannotBeDrawnFromAgain) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto net = strategy.mirror([] { return torch::nn::Linear(3, 3); });
  const auto step = [&](Replica& replica) {
    const auto own = net[replica].ptr();
    const auto dropped = [&](const torch::Tensor& x) { return torch::dropout(own->forward(x), 0.5, true); };
    return remat(own, dropped, torch::ones({2, 3})).sum();
  };
  expect_error<FailedPrecondition>(
      [&] { (void)strategy.run(step); },
      "aten::bernoulli_ draws from LibTorch's default generator, from which the other replicas");
}

}  // namespace
}  // namespace cohort::remat_test
