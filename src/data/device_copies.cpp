// The copies of a share run on its replica's copy stream, from a ring of staging buffers, and end in an event. Whoever
// takes the step lets the device's own work wait for the event; a step that computes longer than its input travels
// never notices the copies.
#include "data/device_copies.h"

#include <algorithm>

#include "base/columns.h"
#include "strategy/core.h"

namespace cohort {

void ArrivingShares::wait() const {
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    if (!arrivals[i]) continue;
    std::vector<torch::Tensor> tensors;
    for_each_column(shares[i], [&](const torch::Tensor& column) {
      if (column.defined()) tensors.push_back(column);
    });
    arrivals[i]->wait(tensors);
  }
}

DeviceCopies::DeviceCopies(const StrategyCore& core, const InputOptions& options) {
  const int64_t buffers = std::max<int64_t>(options.prefetch_steps, 1);
  for (const int i : core.share_leaders()) {
    const DeviceBackend& backend = core.backend(i);
    std::unique_ptr<StagingRing>& ring = rings_.emplace_back();
    if (backend.is_host()) continue;
    ring = std::make_unique<StagingRing>(backend.make_stream(core.replica(i).device()), buffers, options.timeout);
  }
}

ArrivingShares DeviceCopies::begin(Shares shares) {
  ArrivingShares arriving{.shares = std::move(shares), .arrivals = {}};
  for (std::size_t i = 0; i < arriving.shares.size(); ++i) {
    if (!rings_[i]) continue;
    StagingRing::Copied copied = rings_[i]->begin(arriving.shares[i]);
    arriving.shares[i] = std::move(copied.batch);
    arriving.arrivals.resize(rings_.size());
    arriving.arrivals[i] = std::move(copied.arrival);
  }
  return arriving;
}

}  // namespace cohort
