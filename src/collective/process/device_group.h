// DeviceGroup: collectives between processes on tensors that stay on their devices. Comes beside a Wire, over which
// the ranks agree on what they do before it starts.
#pragma once

#include <torch/types.h>

#include <string_view>
#include <vector>

namespace cohort {

// One rank's end. One thread at a time, but for abort(). Tensors are dense and contiguous, the same shape and dtype on
// all ranks; a call returns when its result is there. One that does not come to its end within the group's timeout,
// loses a peer or is aborted throws any std::exception: the caller finds out why.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;

  virtual std::string_view name() const = 0;
  // Whether tensors of this device are for the group; all others go through the host's memory.
  virtual bool carries(const torch::Device& device) const = 0;

  virtual void sum(const torch::Tensor& tensor) = 0;  // in place, over all ranks
  virtual void broadcast(const torch::Tensor& tensor, int root) = 0;
  // Of all ranks, in their order; rank r's has rows[r] along dimension 0, where they may differ.
  virtual std::vector<torch::Tensor> gather(const torch::Tensor& tensor, const std::vector<int64_t>& rows) = 0;

  // After an error: gives up what is still under way. Nothing may follow.
  virtual void drop() noexcept = 0;

  // Ends the call in progress and all later ones. From any thread.
  virtual void abort() noexcept = 0;
};

}  // namespace cohort
