#include "cohort/train/metrics.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::metrics_test {
namespace {

using testing::expect_error;

torch::Tensor doubles(std::vector<double> values, std::vector<int64_t> shape) {
  return torch::tensor(values, torch::kDouble).view(shape);
}
torch::Tensor doubles(std::vector<double> values) {
  return torch::tensor(values, torch::kDouble);
}
torch::Tensor labels(std::vector<int64_t> values) {
  return torch::tensor(values, torch::kLong);
}

double of(const Metric& metric, const torch::Tensor& y, const torch::Tensor& prediction,
          const torch::Tensor& weight = {}) {
  MetricState state = metric.make_state();
  metric.update(state, y, prediction, weight);
  return metric.result(state);
}

// Unless a test says otherwise its numbers are those of the examples in Keras' documentation.
TEST(AccuracyTest, Sparse) {
  const torch::Tensor p = doubles({0.1, 0.6, 0.3, 0.05, 0.95, 0}, {2, 3});
  for (const torch::Tensor& prediction : {p, p.to(torch::kFloat), p.t().contiguous().t()}) {
    EXPECT_DOUBLE_EQ(of(SparseCategoricalAccuracy(), labels({2, 1}), prediction), 0.5);
    EXPECT_NEAR(of(SparseCategoricalAccuracy(), labels({2, 1}), prediction, doubles({0.7, 0.3})), 0.3, 1e-12);
  }
  EXPECT_DOUBLE_EQ(of(SparseCategoricalAccuracy(), labels({0}), doubles({5, 5}, {1, 2})), 1.0);  // the first of equals
  EXPECT_DOUBLE_EQ(
      of(SparseCategoricalAccuracy(), labels({1, 1, 0, 1}).view({2, 2}), doubles({0, 1, 0, 1, 0, 1, 1, 0}, {2, 2, 2})),
      0.5);
  EXPECT_DOUBLE_EQ(of(SparseCategoricalAccuracy(), labels({}), p.slice(0, 0, 0)), 0.0);
  expect_error<InvalidArgument>([&] { of(SparseCategoricalAccuracy(), labels({1}), p); },
                                "[metrics] sparse_categorical_accuracy");
}

TEST(AccuracyTest, CategoricalAndBinary) {
  const torch::Tensor hot = doubles({0, 0, 1, 0, 1, 0}, {2, 3});
  const torch::Tensor p = doubles({0.1, 0.9, 0.8, 0.05, 0.95, 0}, {2, 3});
  EXPECT_DOUBLE_EQ(of(CategoricalAccuracy(), hot, p), 0.5);
  EXPECT_NEAR(of(CategoricalAccuracy(), hot, p, doubles({0.7, 0.3})), 0.3, 1e-12);
  const torch::Tensor y = doubles({1, 1, 0, 0}, {4, 1}), q = doubles({0.98, 1, 0, 0.6}, {4, 1});
  EXPECT_DOUBLE_EQ(of(BinaryAccuracy(), y, q), 0.75);
  EXPECT_DOUBLE_EQ(of(BinaryAccuracy(), y, q, doubles({1, 0, 0, 1})), 0.5);
  EXPECT_DOUBLE_EQ(of(BinaryAccuracy({.threshold = 0.7}), y, q), 1.0);
}

TEST(AccuracyTest, TheShapesChoose) {
  const torch::Tensor p = doubles({0.1, 0.6, 0.3, 0.05, 0.95, 0}, {2, 3});
  EXPECT_DOUBLE_EQ(of("accuracy", labels({2, 1}), p), 0.5);
  EXPECT_DOUBLE_EQ(of("accuracy", labels({2, 1}).view({2, 1}), p), 0.5);
  EXPECT_DOUBLE_EQ(of("accuracy", doubles({0, 0, 1, 0, 1, 0}, {2, 3}), p), 0.5);
  EXPECT_DOUBLE_EQ(of("acc", labels({1, 0}), doubles({0.9, 0.8}, {2, 1})), 0.5);
  EXPECT_DOUBLE_EQ(of(Accuracy(), labels({1, 0}), doubles({0.9, 0.8})), 0.5);
  expect_error<NotFound>([] { Metric("accurracy"); }, "no metric \"accurracy\"");
}

TEST(TopKTest, CountsTiesAndRefusesNaN) {
  const torch::Tensor p = doubles({0.1, 0.9, 0.8, 0.05, 0.95, 0}, {2, 3});
  EXPECT_DOUBLE_EQ(of(SparseTopKCategoricalAccuracy({.k = 1}), labels({2, 1}), p), 0.5);
  EXPECT_NEAR(of(SparseTopKCategoricalAccuracy({.k = 1}), labels({2, 1}), p, doubles({0.7, 0.3})), 0.3, 1e-12);
  EXPECT_DOUBLE_EQ(of(TopKCategoricalAccuracy({.k = 2}), doubles({0, 0, 1, 0, 1, 0}, {2, 3}), p), 1.0);
  EXPECT_DOUBLE_EQ(of(SparseTopKCategoricalAccuracy({.k = 2}), labels({2}), doubles({1, 0, 0}, {1, 3})), 1.0);  // a tie
  EXPECT_DOUBLE_EQ(of(SparseTopKCategoricalAccuracy({.k = 2}), labels({0}), doubles({NAN, 0, 0}, {1, 3})), 0.0);
  EXPECT_EQ(SparseTopKCategoricalAccuracy().name(), "sparse_top_k_categorical_accuracy");
  expect_error<InvalidArgument>([] { TopKCategoricalAccuracy({.k = 0}); }, "k must be positive, got 0");
}

TEST(MeanTest, SumsAndEqualities) {
  const torch::Tensor p = doubles({1, 1, 3, 0}, {2, 2});
  EXPECT_DOUBLE_EQ(of(Sum(), {}, p), 5.0);
  EXPECT_DOUBLE_EQ(of(Sum(), {}, p, doubles({3, 1})), 9.0);
  EXPECT_DOUBLE_EQ(of(EqualityAccuracy(), doubles({1, 0, 3, 0}, {2, 2}), p), 0.75);
  EXPECT_DOUBLE_EQ(of("crossentropy", labels({1}), doubles({0.5, 0.5}, {1, 2})), std::log(2.0));
  EXPECT_NEAR(of("crossentropy", doubles({1}, {1, 1}), doubles({0.5}, {1, 1})), std::log(2.0), 1e-6);
}

}  // namespace
}  // namespace cohort::metrics_test
