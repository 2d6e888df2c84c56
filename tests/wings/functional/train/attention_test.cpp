// Attention: against PyTorch's formula, its masks, and output that is made step by step from a cache.
#include "cohort/train/layers/attention.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "base/access.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"
#include "wings/functional/train/attention_heads.h"

namespace cohort::attention_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;

TEST(AttentionTest, IsPyTorchsMultiheadAttention) {
  torch::manual_seed(1);
  const Built layer = build(MultiHeadAttention({.num_heads = 2, .key_dim = 3}), {5, 6});
  expect_shape(layer, {5, 6});
  torch::nn::MultiheadAttention own(torch::nn::MultiheadAttentionOptions(6, 2));
  own->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    own->in_proj_weight.copy_(torch::cat({layer["query.weight"], layer["key.weight"], layer["value.weight"]}));
    own->in_proj_bias.zero_();
    own->out_proj->weight.copy_(layer["output.weight"]);
    own->out_proj->bias.zero_();
  }
  const torch::Tensor x = random({2, 5, 6});
  const torch::Tensor turned = x.transpose(0, 1);
  const torch::Tensor wanted = std::get<0>(own->forward(turned, turned, turned)).transpose(0, 1);
  expect_close(layer(x), wanted, 1e-10);
  layer(x).square().sum().backward();
  wanted.square().sum().backward();
  expect_close(layer["value.weight"].grad(), own->in_proj_weight.grad().slice(0, 12), 1e-9);
}

TEST(AttentionTest, MasksHideWhatTheySay) {
  torch::manual_seed(2);
  const auto attention =
      make_attention({.num_heads = 2, .key_dim = 3, .value_dim = 4, .output_dim = 5}, 6, 7, torch::kDouble);
  const torch::Tensor query = random({2, 4, 6}), value = random({2, 5, 7});
  const auto all = attention->attend({.query = query, .value = value});
  EXPECT_EQ(all.output.sizes(), (torch::IntArrayRef{2, 4, 5}));
  expect_close(all.scores.sum(-1), torch::ones({2, 2, 4}, torch::kDouble));
  const torch::Tensor seen = torch::tensor({{1, 1, 1, 0, 0}, {1, 1, 1, 0, 0}}).to(torch::kBool);
  const auto part = attention->attend({.query = query, .value = value, .value_mask = seen});
  expect_close(part.output, attention->attend({.query = query, .value = value.slice(1, 0, 3)}).output);
  const torch::Tensor mask = seen.unsqueeze(1).expand({2, 4, 5});
  expect_close(attention->attend({.query = query, .value = value, .attention_mask = mask}).output, part.output);
  expect_close(attention->attend({.query = query, .value = value, .key_mask = seen}).output, part.output);
  const torch::Tensor none = torch::zeros({2, 4}, torch::kBool);
  expect_error<InvalidArgument>([&] { attention->attend({.query = query, .value = value, .value_mask = none}); },
                                "5 the last");
  expect_error<InvalidArgument>([&] { attention->attend({.query = value, .value = value}); }, "as the query");
}

// The outputs of such a query are the bias alone, and nothing learns from it.
TEST(AttentionTest, AQueryThatSeesNoKeyGetsZeros) {
  torch::manual_seed(5);
  for (const torch::ScalarType dtype : {torch::kDouble, torch::kFloat}) {
    const auto attention = make_attention({.num_heads = 2, .key_dim = 3}, 6, 7, dtype);
    const torch::Tensor query = random({2, 4, 6}).to(dtype).requires_grad_();
    const torch::Tensor value = random({2, 5, 7}).to(dtype).requires_grad_();
    torch::Tensor pairs = torch::ones({2, 4, 5}, torch::kBool);
    pairs.select(1, 1).fill_(false);
    pairs.select(2, 3).fill_(false);
    const torch::Tensor steps = torch::tensor({{1, 0, 1, 1}, {1, 0, 1, 1}}).to(torch::kBool);
    const std::vector<AttentionInputs> masked = {{.query = query, .value = value, .attention_mask = pairs},
                                                 {.query = query, .value = value, .query_mask = steps}};
    for (const AttentionInputs& inputs : masked) {
      const AttentionOutput got = attention->attend(inputs);
      expect_close(got.output.select(1, 1), torch::zeros({2, 6}, dtype));
      expect_close(got.scores.select(2, 1), torch::zeros({2, 2, 5}, dtype));
      expect_close(got.scores.select(2, 2).sum(-1), torch::ones({2, 2}, dtype), 1e-6);
      got.output.select(1, 1).sum().backward();
      for (const torch::Tensor& each : {query, value}) {
        EXPECT_TRUE(torch::equal(each.grad(), torch::zeros_like(each)));
        each.mutable_grad() = torch::Tensor();
      }
      for (const auto& each : attention->named_parameters()) {
        if (each.key() == "output.bias") continue;
        EXPECT_EQ(each.value().grad().abs().max().item<double>(), 0.0) << each.key();
      }
      attention->zero_grad();
    }
  }
}

TEST(AttentionTest, ACacheGivesTheSameStepByStep) {
  torch::manual_seed(3);
  const auto attention = make_attention({.num_heads = 2, .key_dim = 3}, 6, 6, torch::kDouble);
  const torch::Tensor x = random({2, 5, 6});
  const torch::Tensor together = attention->attend({.query = x, .value = x, .use_causal_mask = true}).output;
  AttentionCache cache;
  std::vector<torch::Tensor> outputs;
  for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 3), std::pair(3, 5)}) {
    const torch::Tensor next = x.slice(1, begin, end);
    outputs.push_back(
        attention->attend({.query = next, .value = next, .use_causal_mask = true, .cache = &cache}).output);
  }
  EXPECT_EQ(cache.key.sizes(), (torch::IntArrayRef{2, 2, 5, 3}));
  expect_close(torch::cat(outputs, 1), together);
  const Built causal = build(MultiHeadAttention({.num_heads = 2, .key_dim = 3, .use_causal_mask = true}), {5, 6});
  torch::Tensor later = x.clone();
  later.slice(1, 3).fill_(4.0);
  expect_close(causal(x).slice(1, 0, 3), causal(later).slice(1, 0, 3));
}

TEST(AttentionTest, ALayerTakesQueriesValuesAndKeys) {
  torch::manual_seed(5);
  const Layer layer = MultiHeadAttention({.num_heads = 2,
                                          .key_dim = 3,
                                          .value_dim = 4,
                                          .output_dim = 7,
                                          .use_causal_mask = true,
                                          .return_attention_scores = true});
  const auto& kind = dynamic_cast<const GraphLayerKind&>(layer.kind());
  const std::vector<Shape> inputs = {{5, 6}, {4, 3}, {4, 2}};
  const BuildContext context{.name = "it", .input = {5, 6}, .dtype = torch::kDouble, .input_dtype = torch::kDouble};
  EXPECT_EQ(kind.output_shapes(context, inputs), (std::vector<Shape>{{5, 7}, {2, 5, 4}}));
  const auto module = std::dynamic_pointer_cast<Attention>(kind.build_for(context, inputs));
  const torch::Tensor query = random({2, 5, 6}), value = random({2, 4, 3}), key = random({2, 4, 2});
  const torch::Tensor asked = torch::tensor({{1, 1, 1, 1, 0}, {1, 1, 1, 0, 0}}).to(torch::kBool);
  const torch::Tensor given = torch::tensor({{0, 1, 1, 1}, {1, 1, 0, 1}}).to(torch::kBool);
  const torch::Tensor pairs = torch::rand({2, 5, 4}) < 0.8;
  const AttentionOutput wanted = module->attend(
      {.query = query, .value = value, .key = key, .attention_mask = pairs, .query_mask = asked, .value_mask = given});
  const LayerValues got = module->forward_values({.tensors = {query, value, key}, .masks = {asked, given, {}, pairs}});
  expect_close(got.tensors[0], wanted.output);
  expect_close(got.tensors[1], wanted.scores);
  EXPECT_TRUE(torch::equal(got.masks[0], asked));
  expect_error<InvalidArgument>([&] { kind.output_shapes(context, {{5, 6}, {4, 3}, {3, 2}}); }, "as many as values");
}

// Keras 3 gives such a query the mean of all values unless it drops scores.
TEST(AttentionTest, AQueryThatSeesNoKeyMayGetTheMean) {
  using Masks = MultiHeadAttentionOptions::Masks;
  const torch::Tensor mask = torch::tensor({{true, true, false, false}});
  for (const double dropout : {0.0, 0.1}) {
    const Built layer =
        build(MultiHeadAttention({.num_heads = 2, .key_dim = 3, .dropout = dropout, .masks = Masks::kKeras3}), {4, 5});
    layer.module->eval();
    const torch::Tensor x = random({1, 4, 5});
    const torch::Tensor mean = torch::linear(x.mean(1), layer["value.weight"], layer["value.bias"]);
    const torch::Tensor wanted =
        torch::linear(dropout > 0.0 ? mean * 0.0 : mean, layer["output.weight"], layer["output.bias"]);
    const torch::Tensor y = layer.module->forward_masked(x, mask);
    expect_close(y.select(1, 2), wanted);
    expect_close(y.slice(1, 0, 2), layer(x.slice(1, 0, 2)));
  }
}

TEST(AttentionTest, DropoutIsForTraining) {
  torch::manual_seed(4);
  const Built layer = build(MultiHeadAttention({.num_heads = 1, .key_dim = 2, .dropout = 0.5}), {6, 4});
  const torch::Tensor x = random({3, 6, 4});
  EXPECT_FALSE(torch::allclose(layer(x), layer(x)));
  layer.module->eval();
  expect_close(layer(x), layer(x));
}

TEST(AttentionTest, RefusesWhatMakesNoSense) {
  expect_error<InvalidArgument>([] { MultiHeadAttention({.key_dim = 2}); }, "num_heads and key_dim must be positive");
  expect_error<InvalidArgument>([] { MultiHeadAttention({.num_heads = 1, .key_dim = 2, .dropout = 1.0}); }, "dropout");
  expect_error<InvalidArgument>([] { build(MultiHeadAttention({.num_heads = 1, .key_dim = 2}), {4}); },
                                "[steps, size]");
  expect_error<InvalidArgument>([] { make_attention({.num_heads = 1, .key_dim = 2}, 0, 3); }, "must have a size");
}

// One of two heads. What the other one contributes is given.
class OneOfTwo final : public AttentionHeads {
 public:
  explicit OneOfTwo(AttentionOutput other = {}) : other_(std::move(other)) {}

  int64_t count() const override { return 1; }
  torch::Tensor entered(const torch::Tensor& x) const override { return x; }
  torch::Tensor sum(const torch::Tensor& own) const override {
    return other_.output.defined() ? own + other_.output : own;
  }
  torch::Tensor all_scores(const torch::Tensor& own) const override {
    return other_.scores.defined() ? torch::cat({own, other_.scores}, 1) : own;
  }
  torch::Tensor drop_scores(const torch::Tensor& own, double /*rate*/) const override { return own * 2; }

 private:
  AttentionOutput other_;
};

TEST(AttentionTest, OfSomeHeadsIsThatOfAllOnceTheOthersAreAdded) {
  torch::manual_seed(7);
  const MultiHeadAttentionOptions options{.num_heads = 2, .key_dim = 3, .dropout = 0.5};
  const auto whole = make_attention(options, 6, 6, torch::kDouble);
  // Returns the module with one head of the whole one's.
  const auto with_head = [&](int64_t head, AttentionOutput other) {
    const auto part = make_attention(options, 6, 6, torch::kDouble);
    const torch::NoGradGuard no_grad;
    for (const auto& item : whole->named_parameters()) {
      const bool is_output = item.key().starts_with("output");
      const bool is_cut = !is_output || item.key() == "output.weight";
      const torch::Tensor& value = item.value();
      part->named_parameters()[item.key()].set_data(is_cut ? value.narrow(is_output ? 1 : 0, head * 3, 3).clone()
                                                           : value.clone());
    }
    Access::state(*part)->take_heads(std::make_unique<OneOfTwo>(std::move(other)));
    part->eval();
    return part;
  };
  whole->eval();
  const torch::Tensor x = random({2, 5, 6});
  AttentionOutput second = with_head(1, {})->attend({.query = x, .value = x});
  second.output = second.output - whole->named_parameters()["output.bias"];  // added once, by the first
  const auto first = with_head(0, second);
  const AttentionOutput wanted = whole->attend({.query = x, .value = x});
  const AttentionOutput got = first->attend({.query = x, .value = x});
  expect_close(got.output, wanted.output, 1e-12);
  expect_close(got.scores, wanted.scores, 1e-12);
  expect_close(first->forward(x), whole->forward(x), 1e-12);
  // Dropout is that of the heads, which see to it that replicas draw for their own.
  first->train();
  const torch::Tensor own = wanted.output - second.output - whole->named_parameters()["output.bias"];
  expect_close(first->attend({.query = x, .value = x}).output, wanted.output + own, 1e-12);
}

}  // namespace
}  // namespace cohort::attention_test
