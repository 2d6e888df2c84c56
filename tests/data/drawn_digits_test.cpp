#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/data/datasets.h"

namespace cohort::drawn_digits_test {
namespace {

Example everything(const Dataset& dataset) {
  return *dataset.batch(dataset.cardinality()).iterator().next();
}

double accuracy_after(torch::nn::Sequential net, const Example& train, const Example& test, int epochs) {
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(2e-3));
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const torch::Tensor order = torch::randperm(train.size());
    for (int64_t at = 0; at + 64 <= train.size(); at += 64) {
      const torch::Tensor rows = order.slice(0, at, at + 64);
      adam.zero_grad();
      torch::nn::functional::cross_entropy(net->forward(train.x.index_select(0, rows)), train.y.index_select(0, rows))
          .backward();
      adam.step();
    }
  }
  const torch::NoGradGuard no_grad;
  return net->forward(test.x).argmax(1).eq(test.y).to(torch::kDouble).mean().item<double>();
}

TEST(DrawnDigits, AreTheSameEveryTimeAndBalanced) {
  const Example one = everything(datasets::drawn_digits({.train_size = 500, .test_size = 1}).train);
  const Example two = everything(datasets::drawn_digits({.train_size = 500, .test_size = 1}).train);
  const Example other = everything(datasets::drawn_digits({.train_size = 500, .test_size = 1, .seed = 2}).train);
  EXPECT_TRUE(torch::equal(one.x, two.x));
  EXPECT_FALSE(torch::equal(one.x, other.x));
  EXPECT_GE(torch::bincount(one.y).min().item<int64_t>(), 25);
  EXPECT_GE(one.x.min().item<float>(), 0.0F);
  EXPECT_LE(one.x.max().item<float>(), 1.0F);
}

TEST(DrawnDigits, ALinearModelStaysUnder95PercentAndAnMlpIsWellAboveIt) {
  torch::manual_seed(1);
  torch::set_num_threads(1);
  const auto [train, test] = datasets::drawn_digits({.train_size = 12'000, .test_size = 2'000});
  const Example train_all = everything(train);
  const Example test_all = everything(test);
  const double linear =
      accuracy_after(torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 10)), train_all, test_all, 8);
  const double mlp =
      accuracy_after(torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 256), torch::nn::ReLU(),
                                           torch::nn::Linear(256, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10)),
                     train_all, test_all, 5);
  RecordProperty("linear", std::to_string(linear));
  RecordProperty("mlp", std::to_string(mlp));
  std::cout << "linear " << linear << ", mlp " << mlp << "\n";
  EXPECT_LT(linear, 0.95);
  EXPECT_GT(linear, 0.5) << "the digits cannot be told apart at all";
  EXPECT_GT(mlp, linear + 0.03);
}

}  // namespace
}  // namespace cohort::drawn_digits_test
