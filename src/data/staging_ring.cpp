// The columns of a batch lie one behind the other in its buffer, each with the strides that it comes with, so that it
// arrives as it was (channels_last, for one).
#include "data/staging_ring.h"

#include <torch/utils.h>

#include <algorithm>
#include <thread>

#include "base/columns.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "cohort/trace.h"

namespace cohort {

namespace {

bool is_staged(const torch::Tensor& column) {
  return column.defined() && column.is_cpu() && column.layout() == torch::kStrided && column.numel() > 0;
}

int64_t size_of(const torch::Tensor& column) {
  return static_cast<int64_t>(column.nbytes());
}

// Columns begin at cache lines, which suits every dtype.
int64_t room_of(const torch::Tensor& column) {
  constexpr int64_t kLine = 64;
  return (size_of(column) + kLine - 1) / kLine * kLine;
}

// Returns a tensor in the memory of a buffer, from byte `begin` on, with the shape, strides and values of a column. An
// expanded column is written out. It shares the buffer's storage, by which LibTorch knows locked pages.
torch::Tensor staged(const torch::Tensor& memory, int64_t begin, const torch::Tensor& column) {
  const torch::Tensor room = memory.narrow(0, begin, size_of(column)).view(column.scalar_type());
  torch::Tensor in_buffer = column.is_non_overlapping_and_dense() ? room.as_strided(column.sizes(), column.strides())
                                                                  : room.view(column.sizes());
  in_buffer.copy_(column);
  return in_buffer;
}

// Copies are long done, as a rule, when a buffer's turn comes again.
void wait_until_reached(const DeviceEvent& event, std::chrono::milliseconds timeout, std::size_t buffers) {
  if (event.reached()) return;
  const TraceSpan span("input", "wait for a staging buffer");
  const Deadline deadline(timeout);
  constexpr std::chrono::microseconds kLongest(500);
  for (std::chrono::microseconds pause(10); !event.reached(); pause = std::min(2 * pause, kLongest)) {
    if (deadline.passed()) {
      fail<DeadlineExceeded>("[data] copies to a device: waited ", to_text(timeout), " for the batch that came ",
                             buffers, buffers == 1 ? " step" : " steps", " before to leave its buffer");
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

StagingRing::StagingRing(std::unique_ptr<DeviceStream> stream, int64_t buffers, std::chrono::milliseconds timeout)
    : stream_(std::move(stream)), buffers_(static_cast<std::size_t>(buffers)), timeout_(timeout) {}

StagingRing::Copied StagingRing::begin(const Example& batch, const std::function<Example(const Example&)>& change) {
  const torch::NoGradGuard no_grad;
  int64_t bytes = 0;
  for_each_column(batch, [&](const torch::Tensor& column) { bytes += is_staged(column) ? room_of(column) : 0; });
  Buffer& buffer = next_buffer(bytes);
  try {
    Copied result{.batch = copied_from(buffer.memory, batch), .arrival = nullptr};
    if (change) stream_->compute([&] { result.batch = change(result.batch); });
    result.arrival = stream_->record();
    buffer.copied = result.arrival;
    return result;
  } catch (...) {
    buffer.copied = stream_->record();  // some columns may be on their way
    throw;
  }
}

StagingRing::Buffer& StagingRing::next_buffer(int64_t bytes) {
  Buffer& buffer = buffers_[next_];
  if (buffer.copied) wait_until_reached(*buffer.copied, timeout_, buffers_.size());
  buffer.copied = nullptr;
  next_ = (next_ + 1) % buffers_.size();
  if (bytes > 0 && (!buffer.memory.defined() || buffer.memory.numel() < bytes)) {
    buffer.memory = torch::Tensor();  // given up before more is taken
    buffer.memory = stream_->make_staging(bytes);
  }
  return buffer;
}

Example StagingRing::copied_from(const torch::Tensor& memory, const Example& batch) {
  int64_t begin = 0;
  return map_columns(batch, [&](const torch::Tensor& column) {
    if (!memory.defined() || !is_staged(column)) return stream_->copy(column);
    const int64_t at = begin;
    begin += room_of(column);
    return stream_->copy(staged(memory, at, column));
  });
}

}  // namespace cohort
