#include "cohort/train/metrics.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::more_metrics_test {
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
TEST(PositiveRateTest, PrecisionAndRecall) {
  const torch::Tensor y = labels({0, 1, 1, 1}), p = doubles({1, 0, 1, 1});
  EXPECT_NEAR(of(Precision(), y, p), 2.0 / 3.0, 1e-12);
  EXPECT_NEAR(of(Recall(), y, p), 2.0 / 3.0, 1e-12);
  EXPECT_DOUBLE_EQ(of(Precision(), y, p, doubles({0, 0, 1, 0})), 1.0);
  EXPECT_DOUBLE_EQ(of(Recall(), y, p, doubles({0, 1, 3, 0})), 0.75);
  EXPECT_DOUBLE_EQ(of(Precision(), labels({0, 0}), doubles({0, 0})), 0.0);
  EXPECT_DOUBLE_EQ(of(Recall(), labels({0, 0}), doubles({1, 0})), 0.0);
  // The second of two classes: one hit of one prediction, two positives.
  const torch::Tensor hot = doubles({0, 1, 0, 1, 1, 0}, {3, 2}), q = doubles({1, 1, 1, 0, 1, 0}, {3, 2});
  EXPECT_DOUBLE_EQ(of(Precision({.class_id = 1}), hot, q), 1.0);
  EXPECT_DOUBLE_EQ(of(Recall({.class_id = 1}), hot, q), 0.5);
  EXPECT_DOUBLE_EQ(of(Recall({.class_id = 1}), hot, q, doubles({3, 1, 9})), 0.75);
  expect_error<InvalidArgument>([&] { of(Recall({.class_id = 2}), hot, q); }, "class_id 2");
}

// Keras' own test: weights 1 to 4, three thresholds: tp 7, 4, 0; fp 3, 0, 0.
TEST(AucTest, MatchesKerasWithWeights) {
  const torch::Tensor y = labels({0, 0, 1, 1}), p = doubles({0, 0.5, 0.3, 0.9}), w = doubles({1, 2, 3, 4});
  const auto auc = [&](AucCurve curve, AucSummation summation) {
    return of(AUC({.num_thresholds = 3, .curve = curve, .summation = summation}), y, p, w);
  };
  EXPECT_NEAR(auc(AucCurve::kRoc, AucSummation::kInterpolation), 0.785714, 1e-6);
  EXPECT_NEAR(auc(AucCurve::kRoc, AucSummation::kMajoring), 1.0, 1e-6);
  EXPECT_NEAR(auc(AucCurve::kRoc, AucSummation::kMinoring), 0.571428, 1e-6);
  EXPECT_NEAR(auc(AucCurve::kPr, AucSummation::kInterpolation), (0.5 * (3 + 2 * std::log(2.5)) + 4) / 7, 1e-6);
  EXPECT_NEAR(auc(AucCurve::kPr, AucSummation::kMajoring), 1.0, 1e-6);
  EXPECT_NEAR(auc(AucCurve::kPr, AucSummation::kMinoring), 0.3, 1e-6);
  EXPECT_NEAR(of(AUC({.num_thresholds = 3}), y, p), 0.75, 1e-6);
  EXPECT_NEAR(of(AUC({.num_thresholds = 3}), y, p, doubles({1, 0, 0, 1})), 1.0, 1e-6);
}

TEST(AucTest, ApproachesTheExactArea) {
  torch::manual_seed(1);
  const torch::Tensor y = torch::randint(2, {2000}, torch::kLong);
  const torch::Tensor logits = torch::randn({2000}) + y;
  // The share of pairs that are ordered rightly.
  const torch::Tensor positive = logits.masked_select(y == 1), negative = logits.masked_select(y == 0);
  const double exact = (positive.unsqueeze(1) > negative.unsqueeze(0)).to(torch::kDouble).mean().item<double>();
  EXPECT_NEAR(of(AUC({.from_logits = true}), y, logits), exact, 1e-3);
  EXPECT_NEAR(of(AUC(), y.unsqueeze(1), logits.sigmoid().unsqueeze(1)), exact, 1e-3);
  EXPECT_EQ(of(AUC(), labels({1, 1}), doubles({0.2, NAN})), 0.0);
  EXPECT_EQ(of(AUC(), labels({}), doubles({})), 0.0);
  expect_error<InvalidArgument>([] { AUC({.num_thresholds = 1}); }, "at least 2");
}

TEST(MeanTest, LossesAndFunctionsAreMetrics) {
  const torch::Tensor y = doubles({0, 1, 0, 0}, {2, 2}), p = doubles({1, 1, 3, 0}, {2, 2});
  const Metric mse = MeanSquaredError();
  EXPECT_EQ(mse.name(), "mean_squared_error");
  EXPECT_EQ(mse.direction(), Direction::kDown);
  EXPECT_DOUBLE_EQ(of(mse, y, p), 2.5);
  EXPECT_DOUBLE_EQ(of("mse", y, p, doubles({3, 1})), 1.5);
  EXPECT_DOUBLE_EQ(of("mae", y, p), 1.0);
  EXPECT_DOUBLE_EQ(of(RootMeanSquaredError(), y, p), std::sqrt(2.5));
  EXPECT_DOUBLE_EQ(of(Mean(), {}, p), 1.25);
  const Metric largest(
      "largest", [](const torch::Tensor&, const torch::Tensor& q) { return q.amax(1); }, Direction::kUp);
  EXPECT_DOUBLE_EQ(of(largest, y, p), 2.0);
  EXPECT_DOUBLE_EQ(of(largest, y, p, doubles({3, 1})), 1.5);
  EXPECT_DOUBLE_EQ(of(mse, y.slice(0, 0, 0), p.slice(0, 0, 0)), 0.0);
  const Metric bad("bad", [](const torch::Tensor&, const torch::Tensor& q) { return q.sum(); });
  expect_error<InvalidArgument>([&] { of(bad, y, p); }, "do not reduce them");
}

// A mask leaves out what it says, whatever the weights are.
TEST(MaskTest, LeavesOut) {
  const torch::Tensor y = labels({0, 1, 1, 0}), p = doubles({0.9, 0.8, 0.2, 0.1});
  const torch::Tensor mask = labels({1, 1, 0, 1}).to(torch::kBool);
  for (const Metric& metric : {Metric("mse"), Metric("accuracy"), Precision(), Recall(), AUC(), TruePositives()}) {
    MetricState state = metric.make_state();
    metric.update(state, y, p, {}, mask);
    metric.update(state, y, p, doubles({1, 2, 3, 4}), mask);
    MetricState wanted = metric.make_state();
    metric.update(wanted, y, p, mask.to(torch::kDouble));
    metric.update(wanted, y, p, doubles({1, 2, 0, 4}));
    EXPECT_DOUBLE_EQ(metric.result(state), metric.result(wanted)) << metric.name();
  }
  // Steps of a sequence, with a weight for each example.
  const Metric accuracy = SparseCategoricalAccuracy();
  MetricState state = accuracy.make_state();
  accuracy.update(state, labels({1, 0, 1, 1}).view({2, 2}), doubles({0, 1, 0, 1, 0, 1, 1, 0}, {2, 2, 2}),
                  doubles({3, 1}), labels({1, 0, 1, 1}).view({2, 2}).to(torch::kBool));
  EXPECT_DOUBLE_EQ(accuracy.result(state), 4.0 / 5.0);
}

TEST(ScoreTest, SeveralNumbers) {
  const torch::Tensor hot = doubles({1, 0, 0, 1, 0, 1}, {3, 2}), p = doubles({0.9, 0.1, 0.6, 0.4, 0.2, 0.8}, {3, 2});
  const Metric score = F1Score();
  MetricState state = score.make_state();
  EXPECT_EQ(score.results(state), (std::vector<double>{0.0}));
  score.update(state, hot, p);
  const std::vector<double> each = score.results(state);
  ASSERT_EQ(each.size(), 2U);
  EXPECT_NEAR(each[0], 2.0 / 3.0, 1e-6);
  EXPECT_NEAR(each[1], 2.0 / 3.0, 1e-6);
  EXPECT_NEAR(score.result(state), 2.0 / 3.0, 1e-6);
  expect_error<InvalidArgument>([&] { score.update(state, p.slice(1, 0, 1), p.slice(1, 0, 1)); }, "a state of 8 sums");
  // Thresholds in any order keep it.
  const Metric recall = Recall({.thresholds = {0.85, 0.3}});
  MetricState counts = recall.make_state();
  recall.update(counts, hot, p);
  EXPECT_NEAR(recall.results(counts)[0], 1.0 / 3.0, 1e-12);
  EXPECT_NEAR(recall.results(counts)[1], 1.0, 1e-12);
  expect_error<InvalidArgument>([] { Precision({.threshold = 0.5, .thresholds = {0.5}}); }, "both given");
  expect_error<InvalidArgument>([] { F1Score({.threshold = 1.5}); }, "threshold must be between 0 and 1");
}

TEST(IoUTest, WeightsWithAndWithoutFractions) {
  const torch::Tensor y = labels({0, 1, 1}), p = labels({0, 1, 0}), w = doubles({1.5, 2.5, 0.5});
  // Cut: hits 1 and 2, nothing else.
  EXPECT_NEAR(of(MeanIoU({.num_classes = 2}), y, p, w), 1.0, 1e-6);
  EXPECT_NEAR(of(MeanIoU({.num_classes = 2, .truncate_weights = false}), y, p, w), (1.5 / 2.0 + 2.5 / 3.0) / 2.0, 1e-6);
  expect_error<InvalidArgument>([&] { of(MeanIoU({.num_classes = 1}), y, p); }, "labels from 0 to 1");
  expect_error<InvalidArgument>([] { IoU({.num_classes = 2, .target_class_ids = {2}}); }, "target_class_ids has 2");
}

TEST(MeanTest, ALossOfABatchIsNoMetric) {
  expect_error<InvalidArgument>([] { Metric{Dice()}; }, "depends on all examples of a batch");
  const torch::Tensor y = doubles({1, 0, 1, 1}, {2, 2}), p = doubles({1, 0, 0.5, 0.5}, {2, 2});
  EXPECT_NEAR(of(Dice({.axis = {1}}), y, p), (0.0 + 1.0 - 2.0 / 3.0) / 2.0, 1e-6);
  EXPECT_EQ(Metric(CosineSimilarity()).direction(), Direction::kUp);
  EXPECT_NEAR(of(CosineSimilarity(), y, y), 1.0, 1e-6);
}

}  // namespace
}  // namespace cohort::more_metrics_test
