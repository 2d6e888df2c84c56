// RemoteValue: what a scheduled step gives, when it has been run somewhere.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <memory>
#include <vector>

namespace cohort {

class RemoteValueState;

// A handle: copies are the same value. Thread-safe.
class RemoteValue {
 public:
  RemoteValue() = default;
  explicit RemoteValue(std::shared_ptr<RemoteValueState> state) : state_(std::move(state)) {}

  // Returns whether fetch() would return, or throw, at once.
  bool ready() const;
  // Returns the step's tensors; waits for them. Throws what the step threw; Cancelled: it was given up because another
  // one failed, or with its coordinator; DeadlineExceeded.
  std::vector<torch::Tensor> fetch(std::chrono::milliseconds timeout = std::chrono::minutes(10)) const;

 private:
  std::shared_ptr<RemoteValueState> state_;
};

}  // namespace cohort
