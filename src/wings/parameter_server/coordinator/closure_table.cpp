#include "wings/parameter_server/coordinator/closure_table.h"

#include <algorithm>

namespace cohort {

namespace {

using Kind = Consistency::Kind;

int64_t first_group(const ClosureTable& table) {
  int64_t first = INT64_MAX;
  if (!table.queued.empty()) first = table.entries.at(*table.queued.begin()).group;
  if (!table.running.empty()) first = std::min(first, table.entries.at(*table.running.begin()).group);
  return first;
}

bool too_far_ahead(const ClosureTable& table, const Consistency& consistency, const ClosureTable::Worker& worker) {
  if (consistency.kind != Kind::kBoundedStaleness) return false;
  int64_t least = INT64_MAX;
  for (const auto& [index, other] : table.workers) least = std::min(least, other.steps);
  return worker.steps + worker.running - least > consistency.staleness;
}

// Returns whether a busy worker has to wait, so that something is left for the others.
bool leaves_it(const ClosureTable& table, const Consistency& consistency, const ClosureTable::Worker& worker) {
  if (worker.running == 0) return false;
  return consistency.kind != Kind::kAsynchronous || worker.running > 1 || table.queued.size() <= table.workers.size();
}

// Returns a closure of a synchronous step that another worker runs, while few of them are run twice.
std::optional<int64_t> pick_to_double(const ClosureTable& table, const Consistency& consistency, int worker) {
  int doubled = 0;
  std::optional<int64_t> picked;
  for (const int64_t id : table.running) {
    const ClosureTable::Entry& entry = table.entries.at(id);
    if (entry.runners.size() > 1) ++doubled;
    if (!picked && !entry.made && entry.runners.size() == 1 && !entry.runners.contains(worker)) picked = id;
  }
  return doubled < consistency.backup_workers ? picked : std::nullopt;
}

}  // namespace

std::optional<int64_t> next_closure(const ClosureTable& table, const Consistency& consistency, int worker,
                                    bool sparingly) {
  const auto found = table.workers.find(worker);
  if (found == table.workers.end() || too_far_ahead(table, consistency, found->second)) return std::nullopt;
  if (sparingly && leaves_it(table, consistency, found->second)) return std::nullopt;
  const bool waiting = !table.queued.empty();
  if (consistency.kind != Kind::kSynchronous) return waiting ? std::optional(*table.queued.begin()) : std::nullopt;
  if (waiting && table.entries.at(*table.queued.begin()).group == first_group(table)) return *table.queued.begin();
  return pick_to_double(table, consistency, worker);
}

}  // namespace cohort
