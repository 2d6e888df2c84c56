// StagingRing: the buffers of the host's memory through which batches go to a device.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cohort/example.h"
#include "device/backend.h"

namespace cohort {

// Page-locked buffers that are filled in turn. A buffer is made when its turn comes for the first time, of the size of
// the batch that comes, and again only for a batch that is larger; it is filled again when the copies from it are done.
// Devices that copy from any memory alike get the tensors as they are. One thread at a time.
class StagingRing {
 public:
  // `buffers` is 1 or more. `timeout` is the longest wait for the copies from a buffer.
  StagingRing(std::unique_ptr<DeviceStream> stream, int64_t buffers, std::chrono::milliseconds timeout);

  // A batch whose values are on the device where `arrival` has been waited for.
  struct Copied {
    Example batch;
    std::shared_ptr<const DeviceEvent> arrival;
  };
  // Begins to copy a batch of the host, and has `change`, if there is one, make a batch of it on the device. What it
  // consists of may be written to when this returns, unless the device copies from any memory. DeadlineExceeded: the
  // copies from the next buffer are not done in time.
  Copied begin(const Example& batch, const std::function<Example(const Example&)>& change = {});

 private:
  struct Buffer {
    torch::Tensor memory;                       // uint8; undefined before its first turn
    std::shared_ptr<const DeviceEvent> copied;  // the end of the copies from it; null if there were none
  };

  // Returns the buffer whose turn it is, with room for so many bytes and nothing to be copied from it.
  Buffer& next_buffer(int64_t bytes);
  // Returns the batch on the device. Its columns are staged in `memory`, unless that is undefined.
  Example copied_from(const torch::Tensor& memory, const Example& batch);

  std::unique_ptr<DeviceStream> stream_;
  std::vector<Buffer> buffers_;
  std::size_t next_ = 0;
  std::chrono::milliseconds timeout_;
};

}  // namespace cohort
