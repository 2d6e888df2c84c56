// DeviceCopies: takes the shares of a step to the replicas' devices while the step before is computed there.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cohort/distributed_dataset.h"
#include "data/device_map.h"
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

  // Begins to copy each share to its replica's device, on a stream of its own; on the host it stays as it is. `map`, if
  // there is one, then changes it there; for devices that record, the host does so before. DeadlineExceeded: earlier
  // copies are not done in time.
  ArrivingShares begin(Shares shares, const DeviceMap* map = nullptr);

 private:
  // The way of a replica's shares.
  struct Line {
    std::unique_ptr<StagingRing> ring;  // null on the host
    std::optional<kernels::Reach> map;  // how a map is done on the device; unset: on the host
  };
  std::vector<Line> lines_;
};

// Makes the copies of a strategy's shares. Null: all replicas are on the host, and there is no map.
std::unique_ptr<DeviceCopies> make_device_copies(const StrategyCore& core, const InputOptions& options, bool has_map);

}  // namespace cohort
