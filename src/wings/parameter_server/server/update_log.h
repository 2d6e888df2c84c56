// UpdateLog: a record of the updates that were applied. Work for parameter servers runs at least once: a worker that is
// lost in the middle of it has perhaps sent some of its updates, and whoever does it again sends all of them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <set>

#include "wings/parameter_server/known_numbers.h"

namespace cohort {

// The identity of an update, which is the same whoever sends it: its closure and its place among the closure's updates.
struct UpdateId {
  int64_t closure = 0;
  int64_t ordinal = 0;

  friend bool operator<(const UpdateId& a, const UpdateId& b) {
    return a.closure != b.closure ? a.closure < b.closure : a.ordinal < b.ordinal;
  }
};

// The updates that one shard has seen. Not thread-safe.
class UpdateLog {
 public:
  // Notes an update. Returns false if it was noted before.
  bool add(const UpdateId& id) { return id.closure >= floor_ && applied_.insert(id).second; }

  bool has(const UpdateId& id) const { return id.closure < floor_ || applied_.contains(id); }

  // Forgets the updates of earlier closures, of which none will arrive that was not noted.
  void forget_below(int64_t closure) {
    if (closure <= floor_) return;
    floor_ = closure;
    applied_.erase(applied_.begin(), applied_.lower_bound({.closure = floor_, .ordinal = INT64_MIN}));
  }

  std::size_t size() const { return applied_.size(); }

  // Returns the state, int64 of shape [1 + size, 2]: the lowest closure that is not forgotten, then every update.
  torch::Tensor state() const;
  // Takes over a state. InvalidArgument: it has another shape or dtype.
  void load_state(const torch::Tensor& state);
  // Adds the state.
  void put_in(KnownNumbers& numbers) const;

 private:
  int64_t floor_ = INT64_MIN;
  std::set<UpdateId> applied_;
};

}  // namespace cohort
