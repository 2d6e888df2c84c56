// DeviceMap: a change of batches that can be made on the device that takes them.
#pragma once

#include <functional>
#include <memory>

#include "cohort/example.h"
#include "ops/kernels/reach.h"

namespace cohort {

// Returns a batch, changed where it lies: by kernels that reach there or, with kNone, by LibTorch's operations. The
// work may be under way when this returns, on the stream that is current. Thread-safe.
using DeviceMap = std::function<Example(const Example& batch, kernels::Reach reach)>;

using DeviceMapPtr = std::shared_ptr<const DeviceMap>;

}  // namespace cohort
