#include "cohort/cluster/remote_value.h"

#include "base/deadline.h"
#include "base/fail.h"
#include "wings/parameter_server/coordinator/remote_value_state.h"

namespace cohort {

void RemoteValueState::set(std::vector<torch::Tensor> tensors) {
  {
    const std::lock_guard lock(mutex_);
    if (tensors_ || error_) return;
    tensors_ = std::move(tensors);
  }
  is_ready_.notify_all();
}

void RemoteValueState::set_error(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (tensors_ || error_) return;
    error_ = std::move(error);
  }
  is_ready_.notify_all();
}

bool RemoteValueState::ready() const {
  const std::lock_guard lock(mutex_);
  return tensors_ || error_;
}

std::vector<torch::Tensor> RemoteValueState::fetch(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  if (!is_ready_.wait_for(lock, timeout, [&] { return tensors_ || error_; })) {
    fail<DeadlineExceeded>("[coordinator] fetch: the step has not ended within ", to_text(timeout));
  }
  if (error_) std::rethrow_exception(error_);
  return *tensors_;
}

bool RemoteValue::ready() const {
  return state_ && state_->ready();
}

std::vector<torch::Tensor> RemoteValue::fetch(std::chrono::milliseconds timeout) const {
  if (!state_) fail<FailedPrecondition>("[coordinator] fetch: the value was not made by schedule()");
  return state_->fetch(timeout);
}

}  // namespace cohort
