// A runner that stands in for devices that are not here, while the training step of a program for them is recorded. It
// runs nothing, and ends the recording at the program that is a step.
#pragma once

#include <memory>

#include "wings/xla/record/runner.h"

namespace cohort::record {

// Thrown when the first program with a sum over replicas was to be run: a training step. It is no cohort::Error, so
// nobody takes it for a failure that can be recovered from.
class StepRecorded {
 public:
  explicit StepRecorded(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  const std::shared_ptr<const Program>& program() const { return program_; }

 private:
  std::shared_ptr<const Program> program_;
};

// Makes a runner for one device. The host gets back what it has placed there; what the device would have computed is
// zero.
std::shared_ptr<GraphRunner> make_absent_runner();

}  // namespace cohort::record
