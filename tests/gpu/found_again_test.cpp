// Functions that run as graphs, whose tensors are not as they were when the graph was captured.
#include <torch/torch.h>

#include <string>

#include "cohort/cohort.h"
#include "tests/gpu/cards.h"
#include "tests/support/errors.h"
#include "wings/function/device/graph_capture.h"

namespace cohort::found_again_test {
namespace {

using namespace gpu;

using cohort::testing::expect_error;

torch::Tensor of_card(int64_t size, double value) {
  return torch::full({size}, value,
                     torch::dtype(torch::kFloat).device(find_logical_device(on_cards(1)[0]).torch_device));
}

double value_of(const torch::Tensor& tensor) {
  return tensor.cpu().item<double>();
}

TEST(CapturedFunction, IsCapturedAgainWhereATensorHasAnotherShapeOrMemory) {
  COHORT_NEEDS_CARDS(1);
  int calls = 0;
  const torch::Tensor weight = of_card(3, 1.0);
  const torch::Tensor buffer = of_card(3, 1.0);
  const auto f = function([&](const torch::Tensor& x) { return ++calls, (x * weight).sum() + buffer.sum(); },
                          {.jit_compile = true});
  const torch::Tensor x = of_card(3, 1.0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(value_of(f(x)), 6.0);
  EXPECT_EQ(calls, 3);
  const torch::Tensor kept = weight.detach();  // the memory is not gone
  weight.set_data(of_card(3, 5.0));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(value_of(f(x)), 18.0);
  EXPECT_EQ(calls, 4);
  buffer.resize_({1000}).fill_(1.0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(value_of(f(x)), 1015.0);
  EXPECT_EQ(calls, 5);
  buffer.resize_({2});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(value_of(f(x)), 17.0);
  EXPECT_EQ(calls, 6);
}

TEST(CapturedFunction, IsCapturedAgainWhereANumberOfTheHostHasAnotherValue) {
  COHORT_NEEDS_CARDS(1);
  int calls = 0;
  torch::Tensor factor = torch::tensor(2.0);
  const torch::Tensor table = torch::arange(4, torch::kFloat);
  const auto f =
      function([&](const torch::Tensor& x) { return ++calls, x.sum() * (factor + 1) + x.sum() * table.select(0, 1); },
               {.jit_compile = true});
  const torch::Tensor x = of_card(3, 1.0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(value_of(f(x)), 12.0);
  EXPECT_EQ(calls, 3);
  table.select(0, 2).fill_(7.0);  // another one
  EXPECT_EQ(value_of(f(x)), 12.0);
  EXPECT_EQ(calls, 3);
  factor.fill_(4.0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(value_of(f(x)), 18.0);
  EXPECT_EQ(calls, 4);
  table.select(0, 1).fill_(2.0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(value_of(f(x)), 21.0);
  EXPECT_EQ(calls, 5);
  factor = torch::tensor(0.0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(value_of(f(x)), 9.0);
  EXPECT_EQ(calls, 6);
}

TEST(CapturedFunction, NamesANumberOfTheHostThatItChanges) {
  COHORT_NEEDS_CARDS(1);
  const torch::Tensor count = torch::zeros({});
  const auto counts = function([&](const torch::Tensor& x) { return x.sum() * count.add_(1.0); },
                               {.name = "counts", .jit_compile = true});
  const torch::Tensor x = of_card(3, 1.0);
  for (int i = 1; i <= 2; ++i) EXPECT_EQ(value_of(counts(x)), 3.0 * i);
  expect_error<NotCapturable>([&] { counts(x); }, "it changes a tensor of the host of shape []");
}

}  // namespace
}  // namespace cohort::found_again_test
