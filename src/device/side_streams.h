// SideStreams: work beside what threads give devices to do, one stream for each of some devices of one kind, and points
// in the work of either by which one waits for the other.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace cohort {

// A point in the work of a device. Thread-safe.
class DevicePoint {
 public:
  virtual ~DevicePoint() = default;

  // Makes what the calling thread gives a device from now on wait for the point. May return before it is reached.
  // Throws what has ended the work before the point, where the host knows of it.
  virtual void wait(torch::Device device) const = 0;
  // Returns whether the point is reached, without a wait. Throws what has ended the work before it.
  virtual bool reached() const = 0;
};

using PointPtr = std::shared_ptr<const DevicePoint>;

// All but mark() is for one thread at a time. Devices are counted in the order in which they were given.
class SideStreams {
 public:
  virtual ~SideStreams() = default;

  // Returns the point behind what the calling thread has given a device so far. From any thread.
  virtual PointPtr mark(std::size_t device) const = 0;
  // Makes what begins on a device's stream from now on wait for a point of these streams or of mark().
  virtual void follow(std::size_t device, const PointPtr& point) = 0;
  // Begins on a device's stream what the function gives the devices to do. It may be called at once or later, by
  // another thread. `tensors` are those that it uses; the caller may give them up.
  virtual void begin(std::size_t device, std::function<void()> work, std::span<const torch::Tensor> tensors) = 0;
  // Returns the point behind all that has begun on a device's stream.
  virtual PointPtr record(std::size_t device) = 0;
};

// Makes streams of different devices whose streams and events LibTorch has by their general names (c10::Stream,
// c10::Event), as CUDA's are.
std::unique_ptr<SideStreams> make_torch_side_streams(const std::vector<torch::Device>& devices);

}  // namespace cohort
