// A metric over replicas is that of the whole batch, however it is cut.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/error.h"
#include "cohort/train/metrics.h"
#include "tests/support/errors.h"

namespace cohort::mirrored_metric_test {
namespace {

using testing::expect_error;

std::vector<double> of(const Metric& metric, const torch::Tensor& y, const torch::Tensor& prediction,
                       const torch::Tensor& weight = {}) {
  MetricState state = metric.make_state();
  metric.update(state, y, prediction, weight);
  return metric.results(state);
}

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-12) << what << " " << i;
}

// However the batch is cut, the sum of the states gives the same number.
TEST(MirroredMetricTest, IsExactForUnevenAndEmptyShares) {
  torch::manual_seed(2);
  const torch::Tensor y = torch::randint(3, {7}, torch::kLong), p = torch::rand({7, 3}, torch::kDouble),
                      w = torch::rand({7}, torch::kDouble);
  const torch::Tensor hot = torch::one_hot(y, 3);
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  const std::vector<Example> shares = {{p.slice(0, 0, 5), hot.slice(0, 0, 5), w.slice(0, 0, 5)},
                                       {p.slice(0, 5, 7), hot.slice(0, 5, 7), w.slice(0, 5, 7)},
                                       {p.slice(0, 7), hot.slice(0, 7), w.slice(0, 7)}};
  for (const Metric& metric : {Metric("mse"),
                               Metric("accuracy"),
                               AUC(),
                               AUC({.multi_label = true}),
                               AUC({.thresholds = {0.2, 0.4}}),
                               Precision(),
                               Recall({.thresholds = {0.2, 0.6}}),
                               Precision({.top_k = 2}),
                               TrueNegatives(),
                               F1Score(),
                               FBetaScore({.beta = 2.0, .average = ScoreAverage::kWeighted}),
                               F1Score({.average = ScoreAverage::kMicro}),
                               PrecisionAtRecall({.recall = 0.3}),
                               OneHotMeanIoU({.num_classes = 3, .truncate_weights = false}),
                               R2Score(),
                               R2Score({.class_aggregation = R2Aggregation::kNone}),
                               PearsonCorrelation(),
                               Metric(CosineSimilarity()),
                               Sum(),
                               TopKCategoricalAccuracy({.k = 2})}) {
    MirroredMetric mirrored(strategy, metric);
    for (const bool weighted : {false, true}) {
      strategy.run(
          [&](Replica& replica, const Example& share) {
            mirrored.update_state(replica, share.y, share.x, weighted ? share.weight : torch::Tensor());
          },
          PerReplica<Example>(shares));
      const std::vector<double> whole = of(metric, hot, p, weighted ? w : torch::Tensor());
      expect_near(mirrored.results(), whole, metric.name());
      expect_near(mirrored.local_results(), whole, metric.name());
      mirrored.reset_state();
      EXPECT_EQ(mirrored.result(), 0.0) << metric.name();
    }
  }
}

// The first batch tells the number of the metric's sums, so replicas without a batch know nothing of it.
TEST(MirroredMetricTest, LearnsItsSizeFromWhoKnowsIt) {
  const torch::Tensor hot = torch::eye(3, torch::kDouble);
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  MirroredMetric score(strategy, F1Score());
  EXPECT_EQ(score.result(), 0.0);
  EXPECT_EQ(score.local_total().numel(), 0);
  strategy.run([&](Replica& replica) {
    if (replica.id() == 1) score.update_state(replica, hot, hot);
  });
  expect_near(score.results(), of(F1Score(), hot, hot), "f1");

  MirroredMetric other(strategy, F1Score());
  other.set_local_total(score.local_total());
  other.add_local_total(score.local_total());
  expect_near(other.results(), of(F1Score(), at::cat({hot, hot}), at::cat({hot, hot})), "f1 twice");
  expect_error<InvalidArgument>([&] { other.set_local_total(torch::zeros({5}, torch::kDouble)); }, "sums");
  strategy.run([&](Replica& replica) {
    if (replica.id() == 2) score.update_state(replica, hot.slice(1, 0, 2), hot.slice(1, 0, 2));
  });
  expect_error<FailedPrecondition>([&] { score.result(); }, "different shapes");
}

}  // namespace
}  // namespace cohort::mirrored_metric_test
