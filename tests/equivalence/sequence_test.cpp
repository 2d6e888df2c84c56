// Transformers whose positions are in parts against one device: 20 steps of Adam in float64, of lengths that do not
// divide, with short last batches and empty shares.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "cohort/parallel/mesh_strategy.h"
#include "tests/equivalence/mesh_workers.h"
#include "tests/equivalence/outcomes.h"
#include "tests/equivalence/sequence_runs.h"
#include "tests/support/errors.h"

namespace cohort::equivalence::sequence_test {
namespace {

using torch::Tensor;

using namespace sequence_runs;

struct Way {
  int parts;
  SequenceAttention attention;
};

void expect_like_one_device(const Net& net, const std::vector<Way>& ways) {
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net);
  EXPECT_LT(wanted.history["loss"].back(), wanted.history["loss"].front());
  for (const Way& way : ways) {
    SCOPED_TRACE(c10::str(net.name, " in ", way.parts, way.attention == SequenceAttention::kRing ? ", a ring" : ""));
    const DeviceMesh mesh({1, way.parts}, {"batch", "sequence"}, cpu_devices(way.parts));
    expect_like(under(MeshStrategy(mesh, {.attention = way.attention}), net), wanted);
  }
}

constexpr SequenceAttention kRing = SequenceAttention::kRing;
constexpr SequenceAttention kUlysses = SequenceAttention::kUlysses;

TEST(Sequence, DecodersLearnAsOnOneDevice) {
  expect_like_one_device({"decoder", [] { return small_decoder(small()); }}, {{2, kRing}, {3, kRing}, {2, kUlysses}});
  expect_like_one_device({"decoder computed again", [] { return small_decoder(small(/*remat=*/true)); }}, {{2, kRing}});
}

TEST(Sequence, LayersLearnAsOnOneDevice) {
  expect_like_one_device({"layers", [] { return layers(/*causal=*/false); }}, {{2, kRing}, {3, kUlysses}});
  expect_like_one_device({"causal layers", [] { return layers(/*causal=*/true); }}, {{3, kRing}});
}

// docs/parallelism.md has these lines.
MeshStrategy in_halves() {
  const MeshStrategy strategy(DeviceMesh({2, 2}, {"batch", "sequence"}, cpu_devices(4)));
  const auto scope = strategy.scope();
  Sequential model{Embedding(256, 64), MultiHeadAttention({.num_heads = 4, .key_dim = 16, .use_causal_mask = true}),
                   LayerNormalization(), Dense(256)};
  model.build({100}, torch::kLong);
  EXPECT_EQ(model.predict(Dataset::from_tensor_slices(torch::ones({4, 100}, torch::kLong)).batch(4)).sizes(),
            torch::IntArrayRef({4, 100, 256}));
  return strategy;
}

MeshStrategy by_heads() {
  const MeshStrategy strategy(DeviceMesh({4}, {"sequence"}, cpu_devices(4)),
                              {.attention = SequenceAttention::kUlysses});
  return strategy;
}

TEST(Sequence, StrategiesHaveAReplicaForEachLine) {
  EXPECT_EQ(in_halves().num_replicas_in_sync(), 2);
  EXPECT_EQ(by_heads().num_replicas_in_sync(), 1);
}

// Batch and sequence: shares as under mirrored replicas, and the same random numbers.
TEST(Sequence, DividesPositionsBesideTheBatch) {
  const Net net{"layers", [] { return layers(/*causal=*/true, 0.2); }};
  const Outcome wanted = under(MirroredStrategy({.devices = cpu_devices(2)}), net);
  const DeviceMesh mesh({2, 2}, {"batch", "sequence"}, cpu_devices(4));
  for (const int stage : {0, 1, 2, 3}) {  // of shared states
    SCOPED_TRACE(stage);
    expect_like(under(MeshStrategy(mesh, {.sharding = {.stage = stage}}), net), wanted);
  }
}

// A line of positions lies in one worker, or goes through several. The workers are threads, which share LibTorch's
// generator: every run begins with the same values.
TEST(Sequence, WorkersLearnAsOneDevice) {
  const Model first = small_decoder(small());
  const NamedTensors values = first.weights();
  struct Workers {
    int workers, devices, batch, parts;
    SequenceAttention attention;
  };
  const Net net{"decoder", [&] {
                  Model model = small_decoder(small());
                  model.set_weights(values);
                  return model;
                }};
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), net);
  for (const Workers& shape : {Workers{2, 1, 1, 2, kRing}, Workers{2, 2, 1, 4, kRing}, Workers{2, 2, 2, 2, kUlysses}}) {
    const DeviceMesh mesh({shape.batch, shape.parts}, {"batch", "sequence"},
                          devices_of_workers(shape.workers, shape.devices));
    SCOPED_TRACE(mesh.to_string());
    with_mesh_of_workers(
        shape.workers, mesh,
        [&](int /*rank*/) { return MeshOptions{.exchange = {.threads_per_replica = 1}, .attention = shape.attention}; },
        [&](const MultiWorkerMeshStrategy& strategy) { expect_like(under(strategy, net), wanted); });
  }
}

// Images, too: rows go to other workers for convolutions, poolings and paddings, forward and backward.
TEST(Sequence, WorkersHaveImagesInParts) {
  const at::Generator own = at::make_generator<at::CPUGeneratorImpl>(3);
  const Tensor image = torch::randn({2, 3, 14, 5}, own, torch::kDouble);
  const Tensor weight = torch::randn({4, 3, 3, 3}, own, torch::kDouble);
  const auto gradients = [&](const std::function<Tensor(const Tensor&)>& split) {
    const Tensor x = image.clone().requires_grad_(), w = weight.clone().requires_grad_();
    Tensor y = torch::conv2d(split(x), w, {}, 1, 1);
    y = torch::batch_norm(torch::max_pool2d(y, {3, 3}, {2, 1}, {1, 1}), {}, {}, {}, {}, true, 0.1, 1e-3, false);
    y = torch::constant_pad_nd(y, {0, 0, 3, -2});
    (y * torch::arange(y.size(2)).view({-1, 1})).sum().backward();
    return std::pair(x.grad(), w.grad());
  };
  const auto wanted = gradients([](const Tensor& x) { return x; });
  with_mesh_of_workers(
      3, DeviceMesh({3}, {"space"}, devices_of_workers(3, 1)), [](int /*rank*/) { return MeshOptions{}; },
      [&](const MultiWorkerMeshStrategy& strategy) {
        strategy.run([&](Replica& /*replica*/) {
          const auto got = gradients([&](const Tensor& x) {
            return strategy.experimental_split_to_logical_devices(x, {1, 1, 3, 1});
          });
          EXPECT_LT(gap_between(got.first, wanted.first), kClose);
          EXPECT_LT(gap_between(got.second, wanted.second), kClose);
        });
      });
}

template <typename Kind>
void expect_refused(const std::vector<std::string>& parts, const std::vector<Layer>& layers, const MeshOptions& options,
                    const Tensor& x) {
  const std::string message = testing::error_of<Kind>([&] {
    const MeshStrategy strategy(DeviceMesh({4}, {"sequence"}, cpu_devices(4)), options);
    const auto scope = strategy.scope();
    Sequential model(layers, {});
    model.build(Shape(x.sizes().begin() + 1, x.sizes().end()), x.scalar_type());
    (void)model.predict(Dataset::from_tensor_slices(x).batch(2));
  });
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Sequence, WhatDoesNotFitIsNamed) {
  const Tensor tokens = torch::ones({2, 9}, torch::kLong);
  const MultiHeadAttentionOptions attention{.num_heads = 6, .key_dim = 2};
  expect_refused<InvalidArgument>(
      {"MultiHeadAttention \"multi_head_attention\"", "6 heads, dimension 1, which 4 replicas do not divide",
       "1, 2, 3, 6 replicas would, or SequenceAttention::kRing"},
      {Embedding(5, 4), MultiHeadAttention(attention)}, {.attention = kUlysses}, tokens);
  expect_refused<Unimplemented>({"the layer \"lstm\"", "cut in 4 parts along dimension"}, {Embedding(5, 4), LSTM(3)},
                                {}, tokens);
  expect_refused<InvalidArgument>({"input_partition_dims has 2 numbers, [1, 4]", "the first is [2, 9, 4]"}, {Dense(3)},
                                  {}, torch::ones({2, 9, 4}));
  const std::string message = testing::error_of<InvalidArgument>([&] {
    const MeshStrategy strategy(DeviceMesh({2}, {"sequence"}, cpu_devices(2)));
    strategy.run([&](Replica& /*replica*/) {
      AttentionCache cache;
      const Tensor x = strategy.experimental_split_to_logical_devices(torch::ones({2, 9, 4}), {1, 2, 1});
      (void)make_attention(attention, 4, 4)->attend({.query = x, .value = x, .cache = &cache});
    });
  });
  EXPECT_NE(message.find("a cache of keys and values came"), std::string::npos) << message;
}

// A module of one's own that attends to another sequence; no replica has the scores.
TEST(Sequence, AttentionToOthers) {
  const at::Generator own = at::make_generator<at::CPUGeneratorImpl>(3);
  const Tensor x = torch::randn({2, 9, 4}, own, torch::kDouble), memory = torch::randn({2, 7, 4}, own, torch::kDouble);
  const Tensor mask = torch::rand({2, 7}, own, torch::kDouble) > 0.3;
  const auto module = make_attention({.num_heads = 3, .key_dim = 2}, 4, 4, torch::kDouble);
  const AttentionOutput wanted = module->attend({.query = x, .value = memory, .value_mask = mask});
  EXPECT_TRUE(wanted.scores.defined());
  const MeshStrategy strategy(DeviceMesh({2}, {"sequence"}, cpu_devices(2)));
  const auto split = [&](const Tensor& whole) {
    std::vector<int64_t> dims(static_cast<std::size_t>(whole.dim()), 1);
    dims[1] = 2;
    return strategy.experimental_split_to_logical_devices(whole, dims);
  };
  strategy.run([&](Replica& /*replica*/) {
    for (const bool divides : {false, true}) {
      const AttentionOutput got = module->attend(
          {.query = split(x), .value = divides ? split(memory) : memory, .value_mask = divides ? split(mask) : mask});
      EXPECT_FALSE(got.scores.defined());
      const Tensor y = strategy.experimental_replicate_to_logical_devices(got.output);
      EXPECT_LT(gap_between(y, wanted.output), kClose);
    }
  });
}

}  // namespace
}  // namespace cohort::equivalence::sequence_test
