// A number of the logs that a callback watches for improvement.
#pragma once

#include <optional>
#include <string>

#include "cohort/callbacks.h"
#include "train/loop/improvement.h"

namespace cohort {

class Monitor {
 public:
  // `who` is the callback's name, for messages.
  Monitor(std::string who, std::string name, MonitorMode mode, double min_delta);

  // At the beginning of training: finds the direction, in which `number` is the best so far. InvalidArgument when kAuto
  // does not find one.
  Best begin(const Model& model, std::optional<double> number = std::nullopt) const;

  // The number; nullopt, with a warning, when the logs do not have it.
  std::optional<double> read(const Logs& logs) const;

 private:
  std::string who_;
  std::string name_;
  MonitorMode mode_;
  double min_delta_;
};

}  // namespace cohort
