// Layers that merge tensors, beside LibTorch's operations; tests/golden holds Dot and Maximum to Keras.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/train.h"
#include "tests/support/errors.h"

namespace cohort::merging_test {
namespace {

using testing::expect_error;

torch::Tensor values(torch::IntArrayRef sizes, double from) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return (torch::arange(count, torch::kDouble) + from).cos().view(sizes);
}

torch::Tensor merged(const Layer& layer, const std::vector<torch::Tensor>& tensors) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  std::vector<SymbolicTensor> inputs;
  NamedTensors named;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    inputs.push_back(Input(tensors[i].sizes().slice(1).vec(), {.name = name}));
    named.emplace_back(name, tensors[i]);
  }
  const SymbolicTensor output = layer(inputs);
  const torch::Tensor result = Functional(inputs, output, {.dtype = torch::kDouble})(named).front().second;
  EXPECT_EQ(output.shape(), result.sizes().slice(1).vec());
  return result;
}

TEST(Merging, ElementwiseWithMissingDimensions) {
  const torch::Tensor a = values({2, 3, 4}, 0.0), b = values({2, 1, 4}, 1.0), c = values({2, 4}, 2.0);
  const torch::Tensor d = c.unsqueeze(1);
  EXPECT_TRUE(torch::allclose(merged(Add(), {a, b, c}), a + b + d));
  EXPECT_TRUE(torch::allclose(merged(Multiply(), {a, b, c}), a * b * d));
  EXPECT_TRUE(torch::allclose(merged(Average(), {a, b, c}), (a + b + d) / 3.0));
  EXPECT_TRUE(torch::allclose(merged(Maximum(), {c, a}), torch::maximum(d, a)));
  EXPECT_TRUE(torch::allclose(merged(Minimum(), {c, a}), torch::minimum(d, a)));
  EXPECT_TRUE(torch::allclose(merged(Subtract(), {c, a}), d - a));
}

TEST(Merging, SideBySide) {
  const torch::Tensor a = values({2, 3, 4}, 0.0), b = values({2, 3, 1}, 1.0), c = values({2, 5, 4}, 1.0);
  EXPECT_TRUE(torch::equal(merged(Concatenate(), {a, b}), torch::cat({a, b}, 2)));
  EXPECT_TRUE(torch::equal(merged(Concatenate({.axis = 1}), {a, c, c}), torch::cat({a, c, c}, 1)));
}

TEST(Merging, Products) {
  const torch::Tensor a = values({2, 3, 4}, 0.0), b = values({2, 4, 5}, 1.0), c = values({2, 4}, 2.0);
  EXPECT_TRUE(torch::allclose(merged(Dot({.axes = {2, 1}}), {a, b}), torch::bmm(a, b)));
  EXPECT_TRUE(torch::allclose(merged(Dot({.axes = {1}}), {c, c}), c.square().sum(1, true)));
  const torch::Tensor unit = c / c.norm(2, 1, true);
  EXPECT_TRUE(torch::allclose(merged(Dot({.axes = {-1, 1}, .normalize = true}), {a, c}),
                              torch::bmm(a / a.norm(2, 2, true), unit.unsqueeze(2)).squeeze(2)));
}

TEST(Merging, BatchesOfNoExamples) {
  const torch::Tensor none = torch::empty({0, 3, 4}, torch::kDouble);
  EXPECT_EQ(merged(Dot({.axes = {2}}), {none, none}).sizes(), (std::vector<int64_t>{0, 3, 3}));
  EXPECT_EQ(merged(Concatenate(), {none, none}).sizes(), (std::vector<int64_t>{0, 3, 8}));
}

TEST(Merging, RefusesWhatDoesNotFit) {
  const SymbolicTensor a = Input({3, 4}), b = Input({3, 5});
  expect_error<InvalidArgument>([&] { Add()({a, b}); }, "add (Add): the inputs are [3, 4], [3, 5] an example");
  expect_error<InvalidArgument>([&] { Add()(a); }, "wanted two or more");
  expect_error<InvalidArgument>([&] { Subtract()({a, a, a}); }, "wanted two of them");
  expect_error<InvalidArgument>([&] { Concatenate({.axis = 1})({a, b}); }, "all dimensions but axis 1");
  expect_error<InvalidArgument>([&] { Concatenate({.axis = 3})({a, b}); }, "a dimension 3 of each");
  expect_error<InvalidArgument>([] { Concatenate({.axis = 0}); }, "the batch's");
  expect_error<InvalidArgument>([&] { Dot({.axes = {2}})({a, b}); }, "equal sizes along the axes");
  expect_error<InvalidArgument>([] { Dot({}); }, "axes has 0 numbers");
}

}  // namespace
}  // namespace cohort::merging_test
