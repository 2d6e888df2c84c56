// The ids of finished updates, and how they are saved: numbers in a CPU tensor, written and read by pointers.
#include "wings/parameter_server/server/update_log.h"

#include <ATen/Functions.h>

#include "base/fail.h"

namespace cohort {

torch::Tensor UpdateLog::state() const {
  torch::Tensor state = torch::empty({1 + static_cast<int64_t>(applied_.size()), 2}, torch::kLong);
  auto* next = state.data_ptr<int64_t>();
  *next++ = floor_;
  *next++ = 0;
  for (const UpdateId& id : applied_) {
    *next++ = id.closure;
    *next++ = id.ordinal;
  }
  return state;
}

void UpdateLog::load_state(const torch::Tensor& state) {
  if (state.scalar_type() != torch::kLong || state.dim() != 2 || state.size(0) < 1 || state.size(1) != 2) {
    fail<InvalidArgument>("[parameter server] a log of updates must be int64 of shape [1 or more, 2], got ",
                          state.scalar_type(), state.sizes());
  }
  const torch::Tensor rows = state.contiguous();
  const auto* next = rows.data_ptr<int64_t>();
  floor_ = next[0];
  applied_.clear();
  for (int64_t row = 1; row < rows.size(0); ++row) {
    applied_.insert({.closure = next[2 * row], .ordinal = next[2 * row + 1]});
  }
}

void UpdateLog::put_in(KnownNumbers& numbers) const {
  numbers.add(floor_);
  numbers.add(static_cast<int64_t>(applied_.size()));
  for (const UpdateId& id : applied_) {
    numbers.add(id.closure);
    numbers.add(id.ordinal);
  }
}

}  // namespace cohort
