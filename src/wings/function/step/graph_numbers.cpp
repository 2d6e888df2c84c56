// The row of the host is written by a pointer into its memory, which is the host's own.
#include "wings/function/step/graph_numbers.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "device/backend.h"

namespace cohort {

GraphNumbers::GraphNumbers(int64_t size, torch::Device device, bool may_leave_out)
    : rows_(at::zeros({2, size}, torch::dtype(torch::kDouble).device(device))) {
  if (may_leave_out) updated_ = at::ones({}, torch::dtype(torch::kBool).device(device));
}

// The memory of the host is a new one each time, because the device may still read that of the run before.
void GraphNumbers::write(const std::vector<std::vector<double>>& rows) const {
  const torch::NoGradGuard no_grad;
  const torch::Tensor host = backend_of(rows_.device()).host_memory(rows_.numel(), torch::kDouble);
  auto* to = host.data_ptr<double>();
  to = std::copy(rows.front().begin(), rows.front().end(), to);
  std::copy(rows.back().begin(), rows.back().end(), to);
  rows_.view({-1}).copy_(host, /*non_blocking=*/true);
}

void GraphNumbers::note(const torch::Tensor& updated) const {
  const torch::NoGradGuard no_grad;
  if (updated.defined()) torch::Tensor(updated_).copy_(updated);
}

torch::Tensor GraphNumbers::read(GraphCapture& capture, const HostStage& write) {
  const torch::NoGradGuard no_grad;
  const bool has_begun = capture_.lock() == capture.token();
  if (has_begun && row_.defined()) return row_;
  if (has_begun && segment_ == capture.segments()) capture.part({.act = [] {}});
  capture_ = capture.token();
  segment_ = capture.segments();
  capture.before(write);
  row_ = updated_.defined() ? at::where(updated_, rows_[1], rows_[0]) : rows_[0];
  return row_;
}

void GraphNumbers::end(const GraphCapture& capture) {
  row_.reset();
  segment_ = capture.segments();
}

}  // namespace cohort
