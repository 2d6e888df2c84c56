// Tensors that leave a device for the host while the device computes on.
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

namespace cohort {

// Tensors on their way to the host. One thread at a time.
class LeavingTensors {
 public:
  virtual ~LeavingTensors() = default;

  // Waits for them and returns them on the host, contiguous, in memory of their own; once. Another thread than that
  // which computes may call it.
  virtual std::vector<torch::Tensor> take() = 0;
};

// Returns tensors of any devices as they are behind the work that the calling thread has given these, which may change
// them from then on: nothing waits until take().
std::unique_ptr<LeavingTensors> leave(const std::vector<torch::Tensor>& tensors);

// The same of one device that has streams: they are copied within its memory, behind its work, and take() brings them
// over on a stream beside it, through a small piece of the host's memory, with `pins` page-locked. A device without
// room for the copies brings them over at once, while its work waits.
std::unique_ptr<LeavingTensors> leave_beside(const std::vector<torch::Tensor>& tensors, bool pins);

}  // namespace cohort
