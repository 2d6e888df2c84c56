#include "wings/xla/device/cores.h"

#include <c10/util/StringUtil.h>

#include <set>

#include "base/fail.h"

namespace cohort {

void XlaCores::check(const std::vector<std::vector<int>>& replicas) const {
  std::set<int> seen;
  for (const std::vector<int>& cores : replicas) {
    if (cores.empty() || cores.size() != replicas.front().size()) {
      fail<InvalidArgument>("[xla] a replica has ", cores.size(), " core(s), the first one ", replicas.front().size(),
                            ", wanted as many for each, and one at least");
    }
    for (const int core : cores) {
      if (core < 0 || core >= devices_) {
        fail<InvalidArgument>("[xla] the cores [", c10::Join(", ", cores), "] of a replica are wanted, and there are ",
                              "xla:0 to xla:", devices_ - 1);
      }
      if (!seen.insert(core).second) fail<InvalidArgument>("[xla] the core xla:", core, " is named twice");
    }
  }
}

std::shared_ptr<const void> XlaCores::hold(const std::vector<std::vector<int>>& replicas) {
  check(replicas);
  const std::scoped_lock lock(mutex_);
  for (const std::vector<int>& cores : replicas) {
    const auto known = held_.find(cores.front());
    if (known == held_.end() || known->second.cores == cores) continue;
    fail<FailedPrecondition>("[xla] xla:", cores.front(), " was to run on the cores [", c10::Join(", ", cores),
                             "], but a strategy that lives has it run on [", c10::Join(", ", known->second.cores),
                             "]; let that one go before");
  }
  for (const std::vector<int>& cores : replicas) {
    Held& held = held_[cores.front()];
    held.cores = cores;
    ++held.holders;
  }
  const auto release = [self = shared_from_this(), replicas](const void* /*token*/) { self->release(replicas); };
  return {static_cast<const void*>(this), release};
}

void XlaCores::release(const std::vector<std::vector<int>>& replicas) {
  const std::scoped_lock lock(mutex_);
  for (const std::vector<int>& cores : replicas) {
    const auto held = held_.find(cores.front());
    if (--held->second.holders == 0) held_.erase(held);
  }
}

std::vector<int> XlaCores::of(int device) const {
  if (device < 0 || device >= devices_) {
    fail<InvalidArgument>("[xla] got the device xla:", device, ", wanted one of xla:0 to xla:", devices_ - 1);
  }
  const std::scoped_lock lock(mutex_);
  const auto held = held_.find(device);
  return held == held_.end() ? std::vector<int>{device} : held->second.cores;
}

}  // namespace cohort
