// Metric: what is measured beside the loss. A Metric is a value; what it counts is in a MetricState, one a replica,
// whose sum over the replicas gives the result: exact for uneven and empty shares. The metrics that there are:
// cohort/train/metrics.h.
//
//   MirroredMetric accuracy(strategy, SparseCategoricalAccuracy());           // in a loop of the user's own
//   strategy.run([&](Replica& replica, const Example& share) { ... accuracy.update_state(share.y, prediction); },
//   batch); accuracy.result();
//
// Semantics and defaults are Keras 3's. Every function takes (y, prediction[, weight[, mask]]); dimension 0 is the
// batch, which may be empty. A weight has one number an example or the shape of what is averaged; a mask has one
// boolean for each of these, and counts as a weight of 0 or 1. Shapes that do not fit: InvalidArgument.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/strategy.h"
#include "cohort/train/given_options.h"
#include "cohort/train/loss.h"

namespace cohort {

// Sums so far, float64. Adding never waits for the device: what is computed there stays there until total().
class MetricState {
 public:
  // Makes so many sums, all 0.
  explicit MetricState(int64_t size) : host_(static_cast<std::size_t>(size), 0.0) {}

  // Returns the number of sums.
  int64_t size() const { return static_cast<int64_t>(host_.size()); }
  // Makes room for so many sums, where there are none yet: for a metric whose first batch tells how many there are.
  // InvalidArgument: there is another number of them.
  void require_size(int64_t size);

  // Adds a number to one sum.
  void add(int64_t slot, double amount);
  // Adds a scalar on any device to one sum.
  void add(int64_t slot, const torch::Tensor& scalar);
  // Adds the values to the slots from `first` on.
  void add_range(int64_t first, const torch::Tensor& values);

  // Makes the sums of a device that records its work, if there are none yet and their number is known, so that no
  // function makes them.
  void prepare(torch::Device device);

  // Returns the sums, [size], float64, on the CPU; waits for the device.
  torch::Tensor total() const;
  // Sets all sums to 0.
  void reset();

 private:
  torch::Tensor& on_device(torch::Device device);

  std::vector<double> host_;
  torch::Tensor device_;  // undefined until something is added there
};

// Tells which results are better.
enum class Direction { kUnknown, kUp, kDown };

// The part of a metric that distinguishes it from others; immutable, thread-safe.
class MetricRule : public GivenOptions {
 public:
  virtual ~MetricRule() = default;

  // Returns the name in logs.
  virtual const std::string& name() const = 0;
  // Returns which results are better.
  virtual Direction direction() const = 0;
  // Returns the number of sums that the metric keeps; 0: its first batch tells (MetricState::require_size()).
  virtual int64_t state_size() const = 0;
  // Adds a batch to the sums. The weight is undefined where all are 1.
  virtual void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
                      const torch::Tensor& weight) const = 0;
  // Returns the metric from the sums, [state_size()] float64 on the CPU. A metric with several numbers returns their
  // mean.
  virtual double result(const torch::Tensor& total) const = 0;
  // Returns the metric's numbers: one, but where a metric has one for each threshold, class or output.
  virtual std::vector<double> results(const torch::Tensor& total) const { return {result(total)}; }
};

// A value, cheap to copy, thread-safe. Made by the functions of metrics.h.
class Metric {
 public:
  // Any number of values an example ([batch, ...]), whose mean is the metric.
  using Function = std::function<torch::Tensor(const torch::Tensor& y, const torch::Tensor& prediction)>;

  explicit Metric(std::shared_ptr<const MetricRule> rule) : rule_(std::move(rule)) {}
  // A function of the user's.
  Metric(std::string name, Function values, Direction direction = Direction::kUnknown);
  // The mean of a loss' values, under its name: .metrics = {MeanSquaredError()}. InvalidArgument: a loss that is of a
  // batch as a whole, such as Dice() over dimension 0, has no mean.
  Metric(const Loss& loss);  // NOLINT(google-explicit-constructor)
  // "accuracy", "auc", "mse", ...; unknown: NotFound lists them.
  Metric(const char* name);  // NOLINT(google-explicit-constructor)

  // Returns the name in logs. A metric with several numbers logs them as "name[0]", "name[1]", ...
  const std::string& name() const { return rule_->name(); }
  // Returns which results are better.
  Direction direction() const { return rule_->direction(); }
  // Returns what distinguishes the metric from others.
  const MetricRule& rule() const { return *rule_; }

  // Returns the state for a new measurement.
  MetricState make_state() const { return MetricState(rule_->state_size()); }
  // Returns whether the number of sums is known before the first batch.
  bool has_fixed_size() const { return rule_->state_size() > 0; }
  // Adds a batch to a state.
  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight = {}, const torch::Tensor& mask = {}) const;
  // Returns the metric from one state's total(), or from the sum of several; the mean of several numbers. A metric
  // without any values returns 0.
  double result(const torch::Tensor& total) const { return total.numel() == 0 ? 0.0 : rule_->result(total); }
  double result(const MetricState& state) const { return result(state.total()); }
  // Returns all numbers of the metric, of most metrics one.
  std::vector<double> results(const torch::Tensor& total) const;
  std::vector<double> results(const MetricState& state) const { return results(state.total()); }

 private:
  std::shared_ptr<const MetricRule> rule_;
};

// One conceptual metric, a state on every replica. update_state() is called by each replica for itself, without
// communication; the rest in cross-replica context.
class MirroredMetric {
 public:
  // Makes a state for each local replica of the strategy.
  MirroredMetric(const Strategy& strategy, Metric metric);

  // Adds a share of a batch to the state of the replica that runs, or outside of run() to the first one's.
  void update_state(const torch::Tensor& y, const torch::Tensor& prediction, const torch::Tensor& weight = {},
                    const torch::Tensor& mask = {});
  // Adds values to a metric that has no targets: Mean, Sum.
  void update_state(const torch::Tensor& values) { update_state({}, values); }
  // Adds the replica's share of a batch to its state.
  void update_state(const Replica& replica, const torch::Tensor& y, const torch::Tensor& prediction,
                    const torch::Tensor& weight = {}, const torch::Tensor& mask = {});
  // Returns the replica's state, to be added to by hand.
  MetricState& state(const Replica& replica);

  // Returns the result over all replicas.
  double result() const { return metric_.result(total()); }
  // Returns all numbers of the metric, over all replicas.
  std::vector<double> results() const { return metric_.results(total()); }
  // Returns the result over the replicas of this process, without talking to others: for showing progress.
  double local_result() const { return metric_.result(local_total()); }
  // Returns the same for all numbers of the metric.
  std::vector<double> local_results() const { return metric_.results(local_total()); }
  // Returns the sum of all replicas' states.
  torch::Tensor total() const;
  // Returns the sum of this process's states, [size], for saving; setting it back makes the first replica's state of
  // it. InvalidArgument: another size.
  torch::Tensor local_total() const;
  // Sets the sum of this process's states; see local_total().
  void set_local_total(const torch::Tensor& total);
  // Adds what another process has measured to the first replica's state.
  void add_local_total(const torch::Tensor& total);
  // Begins anew, on every local replica.
  void reset_state();
  // Makes the states of replicas that record their work, before a function that adds to them; see MetricState.
  void prepare();
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

}  // namespace cohort
