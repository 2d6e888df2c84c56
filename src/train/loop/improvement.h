// A number that should improve: early stopping, the best checkpoint and the learning rate on a plateau are decided by
// it, for Keras' callbacks and for a Controller's actions.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cohort/train/actions.h"
#include "cohort/train/callbacks.h"

namespace cohort {

class StrategyCore;

// The best number so far.
class Best {
 public:
  Best() = default;
  // Takes whether larger numbers are better, by how much at least, and the number that the first one has to improve
  // upon.
  explicit Best(bool up, double min_delta = 0.0, std::optional<double> number = std::nullopt)
      : up_(up), min_delta_(min_delta), number_(number) {}
  // Makes one for actions, for which the first number is an improvement if it is finite.
  explicit Best(Comparison comparison, double min_delta = 0.0);

  // Returns whether the number is better than the other one. If there is no other one, only a NaN is not better.
  bool better(double number, std::optional<double> than) const;
  // Returns whether the number is better than all before it; then it is the best.
  bool take(double number);
  const std::optional<double>& number() const { return number_; }
  void set(std::optional<double> number) { number_ = number; }

 private:
  bool up_ = false;
  double min_delta_ = 0.0;
  std::optional<double> number_;
};

// Calls save() on all workers if the chief's number is the best so far. Collective.
void save_if_best(const StrategyCore& core, Best& best, std::optional<double> number,
                  const std::function<void()>& save);

// Returns the chief's number on every worker, so that all decide alike where their numbers differ. Collective.
std::optional<double> number_from_chief(const StrategyCore& core, std::optional<double> mine);

// The log that a callback watches.
class Monitor {
 public:
  // `who` is the name of the callback in messages.
  Monitor(std::string who, std::string name, MonitorMode mode, double min_delta);

  // Determines the direction at the beginning of a training, in which `number` is the best so far. InvalidArgument: the
  // mode is kAuto, and the log has no direction.
  Best begin(const Model& model, std::optional<double> number = std::nullopt) const;

  // Returns the number in the chief's logs, or nullopt and a warning if they do not have it. Collective.
  std::optional<double> read(const RunInfo& run, const Logs& logs) const;

  // Fails with InvalidArgument if the number is not among those that a training step measures, which are all that there
  // is within an epoch.
  void require_measured(const Model& model) const;

 private:
  std::string who_;
  std::string name_;
  MonitorMode mode_;
  double min_delta_;
};

}  // namespace cohort
