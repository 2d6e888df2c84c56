// The state behind the handle RemoteValue.
#pragma once

#include <torch/types.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

namespace cohort {

// The outcome of a closure. The first one stays. Thread-safe.
class RemoteValueState {
 public:
  void set(std::vector<torch::Tensor> tensors);
  void set_error(std::exception_ptr error);
  bool ready() const;
  std::vector<torch::Tensor> fetch(std::chrono::milliseconds timeout) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable is_ready_;
  std::optional<std::vector<torch::Tensor>> tensors_;
  std::exception_ptr error_;
};

}  // namespace cohort
