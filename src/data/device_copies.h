// DeviceCopies: takes the shares of a step to the replicas' devices while the step before is computed there.
#pragma once

#include <memory>
#include <vector>

#include "cohort/distributed_dataset.h"
#include "data/staging_ring.h"
#include "data/worker_steps.h"

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
  // Each replica has a staging buffer for every step that is prepared ahead.
  DeviceCopies(const StrategyCore& core, const InputOptions& options);

  // Begins to copy each share to its replica's device, on a stream of its own. On the host a share stays as it is.
  // DeadlineExceeded: earlier copies are not done in time.
  ArrivingShares begin(Shares shares);

 private:
  std::vector<std::unique_ptr<StagingRing>> rings_;  // one a replica; null on the host
};

}  // namespace cohort
