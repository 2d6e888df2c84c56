// What is decided by a number that should improve: when a training stops early, and which checkpoint is the best.
// Keras' callbacks (EarlyStopping, ReduceLROnPlateau, ModelCheckpoint) and a Controller's actions (EarlyStop,
// BestCheckpoint) decide by these.
#pragma once

#include <functional>
#include <optional>

#include "cohort/callbacks.h"
#include "strategy/core.h"

namespace cohort {

// The best number so far.
class Best {
 public:
  Best() = default;
  // `up`: whether larger numbers are better, by more than min_delta. `number`: what the first one has to beat.
  explicit Best(bool up, double min_delta = 0.0, std::optional<double> number = std::nullopt)
      : up_(up), min_delta_(min_delta), number_(number) {}

  // Anything but a NaN is better than nothing.
  bool better(double number, std::optional<double> than) const;
  // Whether the number is better than all before it; then it is the best.
  bool take(double number);
  const std::optional<double>& number() const { return number_; }
  void set(std::optional<double> number) { number_ = number; }

 private:
  bool up_ = false;
  double min_delta_ = 0.0;
  std::optional<double> number_;
};

// Stops a training whose number has not improved for some time. Source: Keras' EarlyStopping.
class EarlyStopRule {
 public:
  EarlyStopRule() = default;
  // `patience`: evaluations without improvement after which to stop. They count while the baseline is not beaten, too.
  EarlyStopRule(const Best& best, int64_t patience, std::optional<double> baseline = std::nullopt)
      : best_(best), patience_(patience), baseline_(baseline) {}

  // Looks at the number of an evaluation, and returns whether it is the best so far.
  bool improves(double number);
  bool exhausted() const { return waited_ >= patience_; }
  int64_t waited() const { return waited_; }

  CallbackState state() const;
  void load_state(const CallbackState& state);

 private:
  Best best_;
  int64_t patience_ = 0;
  std::optional<double> baseline_;
  int64_t waited_ = 0;
};

// Collective. Calls save() on all workers where the chief's number is the best so far.
void save_if_best(const StrategyCore& core, Best& best, std::optional<double> number,
                  const std::function<void()>& save);

}  // namespace cohort
