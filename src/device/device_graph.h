// DeviceGraph: work of a device that is captured once, in segments, and given to the device again as often as wanted,
// each segment as a whole (a CUDA graph). What the host does between two segments is no part of it.
#pragma once

#include <cstddef>

namespace cohort {

// One thread at a time. The segments share the memory of the tensors that are made while they are captured, so they are
// to be replayed in the order in which they were captured.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // From now on what the calling thread gives the device, and what backward passes do that it begins, is captured
  // instead of done: tensors have no values yet. It is no part of what the thread has given the device before.
  virtual void begin() = 0;
  // Ends the segment. Throws what the device has against it; then the segment is not there.
  virtual void end() = 0;
  // Gives up a segment that was begun.
  virtual void abandon() noexcept = 0;
  // Gives the device the work of a segment, behind all that the calling thread has given it. Random numbers go on from
  // where their generators are, and leave these where the same work would have left them.
  virtual void replay(std::size_t segment) = 0;
};

}  // namespace cohort
