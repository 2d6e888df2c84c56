// Confusion counts at several thresholds, which precision, recall, the counts themselves and the area under a curve are
// made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/metric.h"

namespace cohort {

// True and false positives and negatives at one threshold.
struct Confusion {
  double tp = 0.0, fp = 0.0, tn = 0.0, fn = 0.0;
};

// Counts predictions above each of some thresholds by their targets. Its state has, for each label, the weights of the
// positive examples between two thresholds, and then those of the negative ones; the counts at a threshold are sums of
// them. So a prediction is looked at once however many thresholds there are.
class ConfusionCounts {
 public:
  struct Options {
    std::string speaker;
    std::vector<double> thresholds;                  // thresholds in any order
    bool evenly = false;                             // they lead in even steps from 0 to 1
    std::optional<int64_t> class_id = std::nullopt;  // only this one of the last dimension
    std::optional<int64_t> top_k = std::nullopt;     // predictions that are not among so many highest are negative
    bool multi_label = false;                        // counts for each of the last dimension by itself
    std::vector<double> label_weights = {};          // the weights of the last dimension, where it is counted together
  };

  explicit ConfusionCounts(Options options);

  // Returns the sums for so many labels.
  int64_t state_size(int64_t labels = 1) const { return labels * 2 * buckets(); }
  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const;
  // Returns how many labels a state has.
  int64_t labels(const torch::Tensor& total) const { return total.numel() / (2 * buckets()); }
  // Returns the counts at each threshold, in the order in which they were given.
  std::vector<Confusion> counts(const torch::Tensor& total, int64_t label = 0) const;

 private:
  int64_t buckets() const { return static_cast<int64_t>(options_.thresholds.size()) + 1; }
  torch::Tensor buckets_of(const torch::Tensor& prediction) const;
  torch::Tensor selected(const torch::Tensor& values) const;

  Options options_;
  std::vector<std::size_t> order_;  // the order of the thresholds, the lowest first
  std::vector<double> ascending_;
};

// Returns so many thresholds in even steps from 0 to 1.
std::vector<double> even_thresholds(int64_t count);
// Returns whether thresholds are at least three and lead in even steps from 0 to 1.
bool are_even(const std::vector<double>& thresholds);

}  // namespace cohort
