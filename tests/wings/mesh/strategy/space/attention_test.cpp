// Attention whose positions are in parts against attention of the whole: values, and the gradients of queries, keys
// and values, around a ring and by heads. Lengths do not divide, and some parts are empty.
#include "wings/mesh/strategy/space/attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "cohort/cohort.h"
#include "cohort/parallel/mesh_strategy.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/errors.h"

namespace cohort::strategy::space_attention_test {
namespace {

using torch::Tensor;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::string name;
  int64_t queries = 13;
  int64_t keys = 13;
  bool causal = false;
  bool of_keys = false;     // some keys are masked
  bool of_queries = false;  // some queries are masked, and see nothing
  bool of_pairs = false;
  torch::ScalarType type = torch::kDouble;
  bool whole_keys = false;  // keys and values are not divided
};

std::vector<Case> cases() {
  return {{.name = "all"},
          {.name = "causal", .causal = true},
          {.name = "others", .queries = 7, .keys = 11},
          {.name = "others, causal", .queries = 11, .keys = 7, .causal = true},
          {.name = "fewer than parts", .queries = 2, .keys = 2, .causal = true},
          {.name = "one", .queries = 1, .keys = 5},
          {.name = "masks of keys", .of_keys = true},
          {.name = "masks of queries", .of_queries = true},
          {.name = "all masks", .causal = true, .of_keys = true, .of_queries = true, .of_pairs = true},
          {.name = "all masks, float", .of_keys = true, .of_queries = true, .of_pairs = true, .type = torch::kFloat},
          {.name = "whole keys", .keys = 5, .of_pairs = true, .whole_keys = true},
          {.name = "several tiles", .queries = 530, .keys = 530, .causal = true},
          {.name = "float", .causal = true, .type = torch::kFloat},
          {.name = "bfloat16", .causal = true, .type = torch::kBFloat16}};
}

struct Inputs {
  Tensor query, key, value;
  std::vector<Tensor> masks;
};

Inputs inputs_of(const Case& each) {
  const at::Generator own = at::make_generator<at::CPUGeneratorImpl>(5);
  const auto draw = [&](int64_t steps, int64_t size) {
    return torch::randn({2, 6, steps, size}, own, torch::kDouble).to(each.type).requires_grad_();
  };
  Inputs inputs{.query = draw(each.queries, 4), .key = draw(each.keys, 4), .value = draw(each.keys, 3), .masks = {}};
  const auto mask = [&](at::IntArrayRef sizes) {
    inputs.masks.push_back(torch::rand(sizes, own, torch::kDouble) > 0.3);
  };
  if (each.of_keys) mask({2, 1, 1, each.keys});
  if (each.of_queries) mask({2, 1, each.queries, 1});
  if (each.of_pairs) mask({1, 6, each.queries, each.keys});
  return inputs;
}

constexpr double kScale = 0.7;

Tensor attend_whole(const Case& each, const Inputs& in) {
  const bool half = each.type == torch::kBFloat16;
  const auto wide = [&](const Tensor& x) { return half ? x.to(torch::kFloat) : x; };
  Tensor scores = torch::matmul(wide(in.query) * kScale, wide(in.key).transpose(2, 3));
  Tensor seen = torch::ones({each.queries, each.keys}, torch::kBool);
  if (each.causal) seen = torch::arange(each.queries).unsqueeze(1).ge(torch::arange(each.keys));
  for (const Tensor& mask : in.masks) seen = seen.logical_and(mask);
  // A query that sees no key has weights of zeros.
  const Tensor weights = torch::softmax(scores.masked_fill(seen.logical_not(), -1e9), -1) * seen;
  return torch::matmul(weights, wide(in.value)).to(each.type);
}

std::vector<Tensor> outcome(const Inputs& in, const Tensor& y) {
  const Tensor factor = (torch::arange(y.numel(), torch::kDouble) * 0.37).sin().view(y.sizes()).to(y.scalar_type());
  (y * factor).sum().backward();
  return {y.detach(), in.query.grad(), in.key.grad(), in.value.grad()};
}

void expect_like(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted, double close) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(got[i].sizes(), wanted[i].sizes());
    EXPECT_LT((got[i] - wanted[i]).to(torch::kDouble).abs().max().item<double>(), close) << i;
  }
}

AttentionArgs parts_of(const Strategy& strategy, const Case& each, const Inputs& in, int64_t parts) {
  const auto split = [&](const Tensor& x) {
    return strategy.experimental_split_to_logical_devices(x, {1, 1, parts, 1});
  };
  AttentionArgs args{.query = split(in.query),
                     .key = each.whole_keys ? in.key : split(in.key),
                     .value = each.whole_keys ? in.value : split(in.value),
                     .who = "attention",
                     .scale = kScale,
                     .causal = each.causal,
                     .masks = in.masks};
  for (Tensor& mask : args.masks) {
    if (mask.size(1) == 1 && mask.size(2) > 1) mask = split(mask);
  }
  return args;
}

TEST(SpaceAttention, OfPartsIsThatOfTheWhole) {
  for (const SequenceAttention way : {SequenceAttention::kRing, SequenceAttention::kUlysses}) {
    for (const int parts : {2, 3}) {
      const MeshStrategy strategy(DeviceMesh({parts}, {"sequence"}, cpu_devices(parts)), {.attention = way});
      for (const Case& each : cases()) {
        SCOPED_TRACE(c10::str(each.name, " in ", parts, way == SequenceAttention::kRing ? " in a ring" : " by heads"));
        const Inputs whole = inputs_of(each);
        const std::vector<Tensor> wanted = outcome(whole, attend_whole(each, whole));
        const double close = each.type == torch::kDouble ? 1e-11 : each.type == torch::kFloat ? 1e-5 : 0.05;
        strategy.run([&](Replica& /*replica*/) {
          const Inputs in = inputs_of(each);
          const Tensor y = space::attend(parts_of(strategy, each, in, parts));
          expect_like(outcome(in, strategy.experimental_replicate_to_logical_devices(y)), wanted, close);
        });
      }
    }
  }
}

// Two replicas together never have a third of the scores of all positions, forward and backward, when they are 4096.
TEST(SpaceAttention, NoReplicaHasTheScoresOfThePositions) {
  constexpr int64_t kSteps = 4096;
  constexpr int64_t kBytes = kSteps * kSteps * static_cast<int64_t>(sizeof(float));
  testing::CountingAllocator::install();
  const auto peak = [](const std::function<void()>& fn) {
    const int64_t before = testing::CountingAllocator::live();
    testing::CountingAllocator::begin_peak();
    fn();
    return testing::CountingAllocator::peak() - before;
  };
  const auto draw = [] { return torch::randn({1, 1, kSteps, 4}).requires_grad_(); };
  const MeshStrategy strategy(DeviceMesh({2}, {"sequence"}, cpu_devices(2)));
  const auto part = [&] { return strategy.experimental_split_to_logical_devices(draw(), {1, 1, 2, 1}); };
  const int64_t in_ring = peak([&] {
    strategy.run([&](Replica& /*replica*/) {
      space::attend({.query = part(), .key = part(), .value = part(), .who = "attention"}).sum().backward();
    });
  });
  EXPECT_LT(in_ring, kBytes / 3);
  const torch::NoGradGuard no_grad;
  EXPECT_GT(peak([&] { torch::matmul(draw(), draw().transpose(2, 3)); }), kBytes);  // what one device has
}

// Factors are drawn as one device draws them.
TEST(SpaceAttention, DropsWeightsByHeads) {
  const Case each{.name = "dropout", .causal = true};
  const MeshStrategy strategy(DeviceMesh({2}, {"sequence"}, cpu_devices(2)),
                              {.attention = SequenceAttention::kUlysses});
  strategy.set_seed(4);
  strategy.run([&](Replica& replica) {
    at::Generator again = replica.generator().clone();
    const Inputs whole = inputs_of(each), in = inputs_of(each);
    const Tensor kept = torch::empty({2, 6, 13, 13}, torch::kDouble).bernoulli_(0.75, again) / 0.75;
    const Tensor later = torch::arange(13).unsqueeze(1).lt(torch::arange(13));
    const Tensor scores = torch::matmul(whole.query * kScale, whole.key.transpose(2, 3)).masked_fill(later, -kInfinity);
    const auto wanted = outcome(whole, torch::matmul(torch::softmax(scores, -1) * kept, whole.value));
    AttentionArgs args = parts_of(strategy, each, in, 2);
    args.dropout = 0.25;
    expect_like(outcome(in, strategy.experimental_replicate_to_logical_devices(space::attend(args))), wanted, 1e-11);
  });
}

template <typename Kind>
void expect_refused(const std::string& part, SequenceAttention way, int parts,
                    const std::function<void(AttentionArgs&, const Strategy&)>& change) {
  const MeshStrategy strategy(DeviceMesh({parts}, {"sequence"}, cpu_devices(parts)), {.attention = way});
  const std::string message = testing::error_of<Kind>([&] {
    strategy.run([&](Replica& /*replica*/) {
      const Case each{.name = "refused"};
      const Inputs in = inputs_of(each);
      AttentionArgs args = parts_of(strategy, each, in, parts);
      args.who = "MultiHeadAttention \"first\"";
      change(args, strategy);
      (void)space::attend(args);
    });
  });
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(SpaceAttention, WhatDoesNotFitIsNamed) {
  const auto nothing = [](AttentionArgs& /*args*/, const Strategy& /*strategy*/) {};
  expect_refused<InvalidArgument>(
      "[space] MultiHeadAttention \"first\": the queries [2, 6, 13, 4] have 6 heads, dimension 1, which 4 replicas do "
      "not divide (SequenceAttention::kUlysses); 1, 2, 3, 6 replicas would, or SequenceAttention::kRing",
      SequenceAttention::kUlysses, 4, nothing);
  expect_refused<Unimplemented>("a dropout of 0, or SequenceAttention::kUlysses, would fit", SequenceAttention::kRing,
                                2, [](auto& args, const auto&) { args.dropout = 0.1; });
  expect_refused<Unimplemented>("a mask is Double [13, 13], which cannot be cut", SequenceAttention::kRing, 2,
                                [](auto& args, const auto&) {
                                  args.masks = {torch::zeros({13, 13}, torch::kDouble)};
                                });
  expect_refused<Unimplemented>("cut along dimension 1; attention in parts wants them cut along dimension 2",
                                SequenceAttention::kRing, 2, [](auto& args, const Strategy& strategy) {
                                  args.query = strategy.experimental_split_to_logical_devices(
                                      torch::ones({2, 6, 13, 4}, torch::kDouble), {1, 2, 1, 1});
                                });
  const std::string second = testing::error_of<Unimplemented>([] {
    const MeshStrategy strategy(DeviceMesh({2}, {"sequence"}, cpu_devices(2)));
    strategy.run([&](Replica& /*replica*/) {
      const Inputs in = inputs_of({.name = "second"});
      const Tensor y = space::attend(parts_of(strategy, {.name = "second"}, in, 2)).sum();
      (void)torch::autograd::grad({y}, {in.query}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    });
  });
  EXPECT_NE(second.find("second derivatives"), std::string::npos) << second;
  const std::string none = testing::error_of<InvalidArgument>(
      [] { MeshStrategy(DeviceMesh({2}, {"batch"}, cpu_devices(2)), {.attention = SequenceAttention::kUlysses}); });
  EXPECT_NE(none.find("but no axis of the mesh"), std::string::npos) << none;
}

}  // namespace
}  // namespace cohort::strategy::space_attention_test
