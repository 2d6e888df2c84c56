// A number of the logs that is watched for improvement.
#pragma once

#include <optional>
#include <string>

#include "cohort/callbacks.h"

namespace cohort {

class Monitor {
 public:
  // `who` is the callback's name, for messages.
  Monitor(std::string who, std::string name, MonitorMode mode, double min_delta);

  // At the beginning of training: finds the direction. InvalidArgument when kAuto cannot.
  void begin(const Model& model);

  // The number; nullopt, with a warning, when the logs do not have it.
  std::optional<double> read(const Logs& logs) const;

  // Whether a number is better than another by more than min_delta. Anything is better than nothing.
  bool better(double number, std::optional<double> than) const;

 private:
  std::string who_;
  std::string name_;
  MonitorMode mode_;
  double min_delta_;
  bool up_ = false;
};

}  // namespace cohort
