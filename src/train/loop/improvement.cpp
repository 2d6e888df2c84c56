#include "train/loop/improvement.h"

#include <cmath>
#include <limits>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/train/model.h"
#include "strategy/core.h"
#include "train/model/model_state.h"

namespace cohort {

Best::Best(Comparison comparison, double min_delta)
    : up_(comparison == Comparison::kHigher),
      min_delta_(min_delta),
      number_(up_ ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity()) {}

bool Best::better(double number, std::optional<double> than) const {
  if (!than) return !std::isnan(number);
  return up_ ? number - min_delta_ > *than : number + min_delta_ < *than;
}

bool Best::take(double number) {
  if (!better(number, number_)) return false;
  number_ = number;
  return true;
}

std::optional<double> number_from_chief(const StrategyCore& core, std::optional<double> mine) {
  torch::Tensor number = torch::tensor({mine ? 1.0 : 0.0, mine.value_or(0.0)}, torch::kDouble);
  core.broadcast_from_chief({&number, 1});
  if (number[0].item<double>() == 0.0) return std::nullopt;
  return number[1].item<double>();
}

Monitor::Monitor(std::string who, std::string name, MonitorMode mode, double min_delta)
    : who_(std::move(who)), name_(std::move(name)), mode_(mode), min_delta_(std::abs(min_delta)) {}

Best Monitor::begin(const Model& model, std::optional<double> number) const {
  bool up = mode_ == MonitorMode::kMax;
  if (mode_ == MonitorMode::kAuto) {
    const Direction direction = model.direction(name_);
    if (direction == Direction::kUnknown) {
      fail<InvalidArgument>("[callbacks] ", who_, ": whether \"", name_, "\" should go up or down is not known; ",
                            "set .mode to MonitorMode::kMin or kMax");
    }
    up = direction == Direction::kUp;
  }
  return Best(up, min_delta_, number);
}

std::optional<double> Monitor::read(const RunInfo& run, const Logs& logs) const {
  const auto value = number_from_chief(*Access::core(run.model.strategy()), logs.find(name_));
  if (value) return value;
  std::string names;
  for (const auto& item : logs) names += (names.empty() ? "" : ", ") + item.first;
  log().warn("[callbacks] {}: the epoch's logs have no \"{}\", only {}", who_, name_, names);
  return std::nullopt;
}

void Monitor::require_measured(const Model& model) const {
  if (Access::state(model)->measures(name_)) return;
  fail<InvalidArgument>("[callbacks] ", who_, ": monitor is \"", name_,
                        "\", which is not there within an epoch, where ",
                        "save_freq saves; monitor the loss or a metric of the training, or leave save_freq at 0");
}

void save_if_best(const StrategyCore& core, Best& best, std::optional<double> number,
                  const std::function<void()>& save) {
  const Best before = best;
  const bool improved = number && best.take(*number);
  if (core.text_from_chief(improved ? "yes" : "no") != "yes") return;
  try {
    save();
  } catch (...) {
    best = before;  // a number that could not be saved is not the best
    throw;
  }
}

}  // namespace cohort
