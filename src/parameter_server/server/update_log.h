// UpdateLog: which updates were applied. Work for parameter servers runs at least once: a worker that is lost in the
// middle of it has perhaps sent some of its updates, and whoever does it again sends all of them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <set>

namespace cohort {

// The same whoever sends it: the piece of work that it is part of, and its place among that one's updates.
struct UpdateId {
  int64_t closure = 0;
  int64_t ordinal = 0;

  friend bool operator<(const UpdateId& a, const UpdateId& b) {
    return a.closure != b.closure ? a.closure < b.closure : a.ordinal < b.ordinal;
  }
};

// Not thread-safe.
class UpdateLog {
 public:
  // Notes it. False: it was noted before.
  bool add(const UpdateId& id) { return id.closure >= floor_ && applied_.insert(id).second; }

  bool has(const UpdateId& id) const { return id.closure < floor_ || applied_.contains(id); }

  // No update of an earlier closure will come that was not noted: what is kept of them goes.
  void forget_below(int64_t closure) {
    if (closure <= floor_) return;
    floor_ = closure;
    applied_.erase(applied_.begin(), applied_.lower_bound({.closure = floor_, .ordinal = INT64_MIN}));
  }

  std::size_t size() const { return applied_.size(); }

  // int64 of shape [1 + size, 2]: the lowest closure that is not forgotten, then every update.
  torch::Tensor state() const;
  // InvalidArgument: of another shape or dtype.
  void load_state(const torch::Tensor& state);

 private:
  int64_t floor_ = INT64_MIN;
  std::set<UpdateId> applied_;
};

}  // namespace cohort
