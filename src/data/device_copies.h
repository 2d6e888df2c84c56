// DeviceCopies: takes the shares of a step to the replicas' devices while the step before is computed there.
#pragma once

#include <memory>
#include <vector>

#include "data/worker_steps.h"
#include "device/backend.h"

namespace cohort {

class StrategyCore;

// Shares whose values may still be on their way.
struct ArrivingShares {
  Shares shares;
  int64_t digest = 0;  // see JointSteps::OwnStep
  // The end of each share's copies, by replica; null where nothing had to be copied.
  std::vector<std::shared_ptr<const DeviceEvent>> arrivals;

  // Makes what the calling thread computes from now on wait for the copies.
  void wait() const;
};

// One thread at a time.
class DeviceCopies {
 public:
  explicit DeviceCopies(const StrategyCore& core);

  // Begins to copy each share to its replica's device, on a stream of its own. On the host a share stays as it is.
  ArrivingShares begin(Shares shares);

 private:
  std::vector<std::unique_ptr<DeviceStream>> streams_;  // one a replica; null on the host
};

}  // namespace cohort
