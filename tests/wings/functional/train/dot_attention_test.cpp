// DotProductAttention and AdditiveAttention beyond Keras' facts: keys, scores, errors.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/train/layers.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::dot_attention_test {
namespace {

using testing::expect_close;
using testing::expect_error;
using testing::random;
using torch::Tensor;

std::shared_ptr<GraphLayerModule> built(const Layer& layer, const std::vector<Shape>& inputs,
                                        const std::vector<Shape>& outputs) {
  const auto& kind = dynamic_cast<const GraphLayerKind&>(layer.kind());
  const BuildContext context{
      .name = "it", .input = inputs.front(), .dtype = torch::kDouble, .input_dtype = torch::kDouble};
  EXPECT_EQ(kind.output_shapes(context, inputs), outputs);
  return kind.build_for(context, inputs);
}

TEST(DotAttentionTest, TakesKeysAndGivesScores) {
  const Tensor query = random({2, 3, 4}), value = random({2, 5, 6}), key = random({2, 5, 4});
  const auto module = built(DotProductAttention({.use_scale = true, .return_attention_scores = true}),
                            {{3, 4}, {5, 6}, {5, 4}}, {{3, 6}, {3, 5}});
  const LayerValues values = module->forward_values({.tensors = {query, value, key}});
  const Tensor weights = torch::softmax(torch::bmm(query, key.transpose(1, 2)), -1);
  expect_close(values.tensors[1], weights);
  expect_close(values.tensors[0], torch::bmm(weights, value));
  EXPECT_EQ(module->named_parameters()["scale"].dim(), 0);
}

TEST(DotAttentionTest, QueriesThatDoNotCountHaveNoOutput) {
  const Tensor query = random({2, 3, 4}), value = random({2, 5, 4});
  const Tensor mask = torch::tensor({{1, 0, 1}, {1, 1, 0}}).to(torch::kBool);
  const auto module = built(AdditiveAttention(), {{3, 4}, {5, 4}}, {{3, 4}});
  const LayerValues values = module->forward_values({.tensors = {query, value}, .masks = {mask, {}}});
  EXPECT_EQ(values.tensors[0].index({mask.logical_not()}).abs().sum().item<double>(), 0.0);
  EXPECT_TRUE(torch::equal(values.masks[0], mask));
}

TEST(DotAttentionTest, DropoutDropsWeightsInTraining) {
  torch::manual_seed(3);
  const Tensor query = random({2, 3, 4}), value = random({2, 5, 4});
  const auto module = built(DotProductAttention({.dropout = 0.5}), {{3, 4}, {5, 4}}, {{3, 4}});
  const auto call = [&] { return module->forward_values({.tensors = {query, value}}).tensors[0]; };
  EXPECT_FALSE(torch::equal(call(), call()));
  module->eval();
  EXPECT_TRUE(torch::equal(call(), call()));
}

TEST(DotAttentionTest, EmptyBatchesReachTheParameters) {
  for (const Layer& layer :
       {AdditiveAttention(), DotProductAttention({.score_mode = DotProductAttentionOptions::ScoreMode::kConcat})}) {
    const auto module = built(layer, {{3, 4}, {5, 4}}, {{3, 4}});
    const Tensor query = random({0, 3, 4}).requires_grad_();
    module->forward_values({.tensors = {query, random({0, 5, 4})}}).tensors[0].sum().backward();
    EXPECT_TRUE(query.grad().defined());
    for (const Tensor& parameter : module->parameters()) EXPECT_TRUE(parameter.grad().defined());
  }
}

TEST(DotAttentionTest, InputsThatDoNotFitAreErrors) {
  const auto refused = [](const std::vector<Shape>& inputs) {
    expect_error<InvalidArgument>([&] { built(DotProductAttention(), inputs, {}); },
                                  "it (DotProductAttention): the input is [3, 4]");
  };
  refused({{3, 4}});
  refused({{3, 4}, {5, 6}});
  refused({{3, 4}, {5, 6}, {4, 4}});
  refused({{3, 4}, {5}});
  expect_error<InvalidArgument>([] { DotProductAttention({.dropout = 1.0}); },
                                "DotProductAttention: dropout must be in [0, 1), got 1");
  const auto module = built(DotProductAttention(), {{3, 4}, {5, 4}}, {{3, 4}});
  expect_error<InvalidArgument>(
      [&] {
        module->forward_values({.tensors = {random({2, 3, 4})}});
      },
      "got 1 inputs, wanted 2");
}

}  // namespace
}  // namespace cohort::dot_attention_test
