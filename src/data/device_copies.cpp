// The copies of a share run on its replica's copy stream and end in an event. Whoever takes the step lets the device's
// own work wait for the event; a step that computes longer than its input travels never notices the copies.
#include "data/device_copies.h"

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

DeviceCopies::DeviceCopies(const StrategyCore& core) {
  for (const int i : core.share_leaders()) {
    const DeviceBackend& backend = core.backend(i);
    streams_.push_back(backend.is_host() ? nullptr : backend.make_stream(core.replica(i).device()));
  }
}

ArrivingShares DeviceCopies::begin(Shares shares) {
  ArrivingShares arriving{.shares = std::move(shares), .arrivals = {}};
  for (std::size_t i = 0; i < arriving.shares.size(); ++i) {
    if (!streams_[i]) continue;
    const auto copy = [&](const torch::Tensor& column) { return streams_[i]->copy(column); };
    arriving.shares[i] = map_columns(arriving.shares[i], copy);
    arriving.arrivals.resize(streams_.size());
    arriving.arrivals[i] = streams_[i]->record();
  }
  return arriving;
}

}  // namespace cohort
