// Metrics: what is measured beside the loss. A Metric is a value; what it counts is in a MetricState, one a replica,
// whose sum over the replicas gives the result: exact for uneven and empty shares.
//
//   model.compile({.optimizer = Adam(), .loss = ..., .metrics = {SparseCategoricalAccuracy(), MeanSquaredError()}});
//
//   MirroredMetric accuracy(strategy, SparseCategoricalAccuracy());           // in a loop of the user's own
//   strategy.run([&](Replica& replica, const Example& share) { ... accuracy.update(replica, share.y, prediction); },
//   batch); accuracy.result();
//
// Semantics and defaults are Keras'. Every function takes (y, prediction[, weight]); dimension 0 is the batch, which
// may be empty. A weight has one number an example or the shape of what is averaged. Shapes that do not fit:
// InvalidArgument.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/strategy.h"
#include "cohort/train/losses.h"

namespace cohort {

// Sums so far, float64. Adding never waits for the device: what is computed there stays there until total().
class MetricState {
 public:
  // So many sums, all 0.
  explicit MetricState(int64_t size) : host_(static_cast<std::size_t>(size), 0.0) {}

  // Adds a number to one sum.
  void add(int64_t slot, double amount) { host_[static_cast<std::size_t>(slot)] += amount; }
  // Adds a scalar on any device to one sum.
  void add(int64_t slot, const torch::Tensor& scalar);
  // values.numel() slots from `first` on.
  void add_range(int64_t first, const torch::Tensor& values);

  // [size], float64, on the CPU; waits for the device.
  torch::Tensor total() const;
  // Sets all sums to 0.
  void reset();

 private:
  torch::Tensor& on_device(torch::Device device);

  std::vector<double> host_;
  torch::Tensor device_;  // undefined until something is added there
};

// Which results are better.
enum class Direction { kUnknown, kUp, kDown };

// What distinguishes one metric from another; immutable, thread-safe.
class MetricRule {
 public:
  virtual ~MetricRule() = default;

  // Returns the name in logs.
  virtual const std::string& name() const = 0;
  // Returns which results are better.
  virtual Direction direction() const = 0;
  // Returns the number of sums that the metric keeps.
  virtual int64_t state_size() const = 0;
  // Adds a batch to the sums.
  virtual void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
                      const torch::Tensor& weight) const = 0;
  // Returns the metric from the sums, [state_size()] float64 on the CPU.
  virtual double result(const torch::Tensor& total) const = 0;
};

// A value, cheap to copy, thread-safe. Made by the functions below.
class Metric {
 public:
  // Any number of values an example ([batch, ...]), whose mean is the metric.
  using Function = std::function<torch::Tensor(const torch::Tensor& y, const torch::Tensor& prediction)>;

  explicit Metric(std::shared_ptr<const MetricRule> rule) : rule_(std::move(rule)) {}
  // A function of the user's.
  Metric(std::string name, Function values, Direction direction = Direction::kUnknown);
  // The mean of a loss, under its name: .metrics = {MeanSquaredError()}.
  Metric(const Loss& loss);  // NOLINT(google-explicit-constructor)
  // "accuracy", "auc", "mse", ...; unknown: NotFound lists them.
  Metric(const char* name);  // NOLINT(google-explicit-constructor)

  // Returns the name in logs.
  const std::string& name() const { return rule_->name(); }
  // Returns which results are better.
  Direction direction() const { return rule_->direction(); }

  // Returns the state for a new measurement.
  MetricState make_state() const { return MetricState(rule_->state_size()); }
  // Adds a batch to a state.
  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight = {}) const;
  // Returns the metric from one state's total(), or from the sum of several. Without any values: 0.
  double result(const torch::Tensor& total) const { return rule_->result(total); }
  double result(const MetricState& state) const { return result(state.total()); }

 private:
  std::shared_ptr<const MetricRule> rule_;
};

// One conceptual metric, a state on every replica. update() is called by each replica for itself, without
// communication; the rest in cross-replica context.
class MirroredMetric {
 public:
  // Makes a state for each local replica of the strategy.
  MirroredMetric(const Strategy& strategy, Metric metric);

  // Adds the replica's share of a batch to its state.
  void update(const Replica& replica, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight = {});
  // The replica's state, to be added to by hand.
  MetricState& state(const Replica& replica);

  // Over all replicas.
  double result() const;
  // Over the replicas of this process, without talking to others: for showing progress.
  double local_result() const;
  // The sum of this process's states, [size], for saving; setting it back makes the first replica's state of it.
  // InvalidArgument: another size.
  torch::Tensor local_total() const;
  // Sets the sum of this process's states; see local_total().
  void set_local_total(const torch::Tensor& total);
  // Begins anew, on every local replica.
  void reset();
  // Returns the metric that is measured.
  const Metric& metric() const { return metric_; }

 private:
  struct alignas(64) Slot {  // no two replicas write to one cache line
    MetricState state;
  };

  Strategy strategy_;
  Metric metric_;
  std::vector<Slot> slots_;
};

struct MeanOptions {
  std::string name = "mean";  // in logs
};
// The mean of all predicted values.
Metric Mean(const MeanOptions& options = {});

struct AccuracyOptions {
  std::string name = "accuracy";  // in logs
};
// What Keras makes of "accuracy": chosen by the shapes. Integer labels without the class dimension: the sparse one;
// more than one value in the last dimension: the categorical one; otherwise the binary one.
Metric Accuracy(const AccuracyOptions& options = {});

struct SparseCategoricalAccuracyOptions {
  std::string name = "sparse_categorical_accuracy";  // in logs
};
// y: integers [batch, ...]; prediction: logits or probabilities [batch, ..., classes].
Metric SparseCategoricalAccuracy(const SparseCategoricalAccuracyOptions& options = {});

struct CategoricalAccuracyOptions {
  std::string name = "categorical_accuracy";  // in logs
};
// y: one-hot or probabilities of the prediction's shape.
Metric CategoricalAccuracy(const CategoricalAccuracyOptions& options = {});

struct BinaryAccuracyOptions {
  double threshold = 0.5;                // a prediction above it means 1 (0.0 for logits)
  std::string name = "binary_accuracy";  // in logs
};
// The share of predictions that equal their target after the threshold has made them 0 or 1.
Metric BinaryAccuracy(const BinaryAccuracyOptions& options = {});

struct TopKAccuracyOptions {
  int64_t k = 5;          // a label is right when it is among so many largest predictions
  std::string name = {};  // empty: sparse_top_k_categorical_accuracy or top_k_categorical_accuracy
};
// Whether the label is among the k highest predictions; a tie for the last place counts.
Metric SparseTopKCategoricalAccuracy(const TopKAccuracyOptions& options = {});
// The same for targets of the prediction's shape, whose largest element is the label.
Metric TopKCategoricalAccuracy(const TopKAccuracyOptions& options = {});

struct PrecisionOptions {
  double threshold = 0.5;                          // a prediction above it is positive (0.0 for logits)
  std::optional<int64_t> class_id = std::nullopt;  // only this one of the last dimension
  std::string name = "precision";                  // in logs
};
// True positives / predicted positives; 0 without any.
Metric Precision(const PrecisionOptions& options = {});

struct RecallOptions {
  double threshold = 0.5;                          // a prediction above counts as positive
  std::optional<int64_t> class_id = std::nullopt;  // only this one of the last dimension
  std::string name = "recall";                     // in logs
};
// True positives / positives; 0 without any.
Metric Recall(const RecallOptions& options = {});

// Which curve: true positives over false positives, or precision over recall.
enum class AucCurve { kRoc, kPr };
// How the area between two thresholds is taken: by interpolation, by the lower, or by the higher value.
enum class AucSummation { kInterpolation, kMinoring, kMajoring };

struct AucOptions {
  int64_t num_thresholds = 200;     // how many, from 0 to 1
  AucCurve curve = AucCurve::kRoc;  // which curve
  // How the area between two thresholds is taken. For kPr kInterpolation is that of Davis and Goadrich (2006).
  AucSummation summation = AucSummation::kInterpolation;
  bool from_logits = false;  // predictions are logits instead of probabilities
  std::string name = "auc";  // in logs
};
// The area under a curve, approximated at evenly spread thresholds. Predictions outside [0, 1] count as the nearer end.
Metric AUC(const AucOptions& options = {});

struct RootMeanSquaredErrorOptions {
  std::string name = "root_mean_squared_error";  // in logs
};
// The root of the mean of the squares of the differences.
Metric RootMeanSquaredError(const RootMeanSquaredErrorOptions& options = {});

}  // namespace cohort
