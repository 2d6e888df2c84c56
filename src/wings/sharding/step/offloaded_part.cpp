// The values travel by slices: those that come wait beside the card's other work, those that go do so in its order, so
// that what the card computes next finds them.
#include "wings/sharding/step/offloaded_part.h"

#include "cohort/trace.h"

namespace cohort {

OffloadedPart::OffloadedPart(const FlatParameters& flat, const ShardPlan& plan, int owner, std::size_t copy,
                             const DeviceBackend& backend)
    : stream_(backend.make_stream(flat.groups().front().copies[copy].device())) {
  for (std::size_t g = 0; g < flat.groups().size(); ++g) {
    values_.push_back(shards_of(flat) != nullptr
                          ? shards_of(flat)->shard(g, static_cast<int>(copy))
                          : backend.host_memory(plan.size(g, owner), flat.groups()[g].dtype).zero_());
  }
  for (std::size_t u = 0; u < plan.units().size() && shards_of(flat) == nullptr; ++u) {
    const ShardUnit& unit = plan.units()[u];
    const Slice slice = unit.slice(owner);
    if (slice.size() == 0) continue;
    pairs_.push_back({.card = flat.groups()[unit.group].copies[copy].slice(0, slice.begin, slice.end),
                      .here = values_[unit.group].narrow(0, plan.at(u, owner), slice.size())});
  }
}

void OffloadedPart::fetch() {
  if (pairs_.empty()) return;
  const TraceSpan span("communication", "parameters to the host");
  for (const auto& [card, here] : pairs_) stream_->fetch(card, here);
  stream_->synchronize();
}

void OffloadedPart::send() const {
  for (const auto& [card, here] : pairs_) card.copy_(here, /*non_blocking=*/true);
}

}  // namespace cohort
