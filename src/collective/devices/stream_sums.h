// StreamSums: sums over processes that devices make by themselves, in the order of their streams, as NCCL between
// processes does. A communicator of devices may be one besides.
#pragma once

#include <torch/types.h>

#include <string>

namespace cohort {

class StreamSums {
 public:
  virtual ~StreamSums() = default;

  // Begins to add up a contiguous tensor over all ranks, in place, behind what the calling thread's current stream of
  // its device has; what that stream gets from then on comes after it. Does not wait for the device. All ranks begin
  // the same sums in the same order; one thread at a time.
  virtual void begin_all_reduce(const torch::Tensor& tensor) = 0;
  // Returns what sums that were begun have come to grief by; empty: nothing. From any thread.
  virtual std::string error() = 0;
  // Ends what is under way; nothing may follow. From any thread.
  virtual void end_sums(const std::string& reason) noexcept = 0;
};

}  // namespace cohort
