// DeviceMap: a change of batches that can be made on the device that takes them.
#pragma once

#include <memory>

#include "base/kernels/reach.h"
#include "cohort/example.h"

namespace cohort {

// Thread-safe.
class DeviceMap {
 public:
  virtual ~DeviceMap() = default;

  // Returns a batch, changed where it lies: by kernels that reach there or, with kNone, by LibTorch's operations. The
  // work may be under way when this returns, on the stream that is current.
  virtual Example operator()(const Example& batch, kernels::Reach reach) const = 0;
};

using DeviceMapPtr = std::shared_ptr<const DeviceMap>;

}  // namespace cohort
