// The part of ClosureQueue that decides which closure a worker gets next.
#include <algorithm>

#include "parameter_server/coordinator/closure_queue.h"

namespace cohort {

int64_t ClosureQueue::first_group() const {
  int64_t first = INT64_MAX;
  if (!queued_.empty()) first = entries_.at(*queued_.begin()).group;
  if (!running_.empty()) first = std::min(first, entries_.at(*running_.begin()).group);
  return first;
}

bool ClosureQueue::too_far_ahead(const Worker& worker) const {
  if (options_.consistency.kind != Consistency::Kind::kBoundedStaleness) return false;
  int64_t least = INT64_MAX;
  for (const auto& [index, other] : workers_) least = std::min(least, other.steps);
  return worker.steps + worker.running - least > options_.consistency.staleness;
}

std::optional<int64_t> ClosureQueue::pick(int worker) const {
  const auto found = workers_.find(worker);
  if (found == workers_.end() || error_ || too_far_ahead(found->second)) return std::nullopt;
  if (options_.consistency.kind != Consistency::Kind::kSynchronous) {
    return queued_.empty() ? std::nullopt : std::optional(*queued_.begin());
  }
  if (!queued_.empty() && entries_.at(*queued_.begin()).group == first_group()) return *queued_.begin();
  return pick_to_double(worker);
}

std::optional<int64_t> ClosureQueue::pick_to_double(int worker) const {
  int doubled = 0;
  std::optional<int64_t> picked;
  for (const int64_t id : running_) {
    const Entry& entry = entries_.at(id);
    if (entry.runners.size() > 1) ++doubled;
    if (!picked && !entry.made && entry.runners.size() == 1 && !entry.runners.contains(worker)) picked = id;
  }
  return doubled < options_.consistency.backup_workers ? picked : std::nullopt;
}

std::optional<Closure> ClosureQueue::take(int worker, bool sparingly) {
  const std::lock_guard lock(mutex_);
  const auto found = workers_.find(worker);
  if (sparingly && found != workers_.end() && found->second.running > 0) {
    const bool any_order = options_.consistency.kind == Consistency::Kind::kAsynchronous;
    if (!any_order || found->second.running > 1 || queued_.size() <= workers_.size()) return std::nullopt;
  }
  const std::optional<int64_t> id = pick(worker);
  if (!id) return std::nullopt;
  Entry& entry = entries_.at(*id);
  queued_.erase(*id);
  running_.insert(*id);
  entry.state = State::kRunning;
  entry.closure.attempt = ++attempts_;
  entry.runners[worker] = attempts_;
  ++workers_.at(worker).running;
  ++events_;
  return entry.closure;
}

}  // namespace cohort
