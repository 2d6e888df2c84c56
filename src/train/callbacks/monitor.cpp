#include "train/callbacks/monitor.h"

#include <cmath>

#include "base/fail.h"
#include "base/log.h"
#include "cohort/model.h"

namespace cohort {

Monitor::Monitor(std::string who, std::string name, MonitorMode mode, double min_delta)
    : who_(std::move(who)), name_(std::move(name)), mode_(mode), min_delta_(std::abs(min_delta)) {}

void Monitor::begin(const Model& model) {
  up_ = mode_ == MonitorMode::kMax;
  if (mode_ != MonitorMode::kAuto) return;
  const Direction direction = model.direction(name_);
  if (direction == Direction::kUnknown) {
    fail<InvalidArgument>("[callbacks] ", who_, ": whether \"", name_, "\" should go up or down is not known; ",
                          "set .mode to MonitorMode::kMin or kMax");
  }
  up_ = direction == Direction::kUp;
}

std::optional<double> Monitor::read(const Logs& logs) const {
  const auto value = logs.find(name_);
  if (value) return value;
  std::string names;
  for (const auto& item : logs) names += (names.empty() ? "" : ", ") + item.first;
  log().warn("[callbacks] {}: the epoch's logs have no \"{}\", only {}", who_, name_, names);
  return std::nullopt;
}

bool Monitor::better(double number, std::optional<double> than) const {
  if (!than) return !std::isnan(number);
  return up_ ? number - min_delta_ > *than : number + min_delta_ < *than;
}

}  // namespace cohort
