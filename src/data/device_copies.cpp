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
    Line& line = lines_.emplace_back();
    if (backend.is_host()) continue;
    line.ring = std::make_unique<StagingRing>(backend.make_stream(core.replica(i).device()), buffers, options.timeout);
    if (!backend.records()) line.map = backend.kernels();
  }
}

std::unique_ptr<DeviceCopies> make_device_copies(const StrategyCore& core, const InputOptions& options, bool has_map) {
  const auto on_host = [&](int replica) { return core.backend(replica).is_host(); };
  if (!has_map && std::all_of(core.share_leaders().begin(), core.share_leaders().end(), on_host)) return nullptr;
  return std::make_unique<DeviceCopies>(core, options);
}

ArrivingShares DeviceCopies::begin(Shares shares, const DeviceMap* map) {
  ArrivingShares arriving{.shares = std::move(shares), .arrivals = {}};
  for (std::size_t i = 0; i < arriving.shares.size(); ++i) {
    const Line& line = lines_[i];
    Example& share = arriving.shares[i];
    if (map != nullptr && !line.map) share = (*map)(share, kernels::Reach::kHost);
    if (!line.ring) continue;
    std::function<Example(const Example&)> change;
    if (map != nullptr && line.map) change = [&](const Example& there) { return (*map)(there, *line.map); };
    StagingRing::Copied copied = line.ring->begin(share, change);
    share = std::move(copied.batch);
    arriving.arrivals.resize(lines_.size());
    arriving.arrivals[i] = std::move(copied.arrival);
  }
  return arriving;
}

}  // namespace cohort
