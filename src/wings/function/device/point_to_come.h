// PointToCome: a point in a device's work that is known later than somebody begins to ask for it.
#pragma once

#include <mutex>
#include <utility>

#include "device/side_streams.h"

namespace cohort {

// Thread-safe. Without a point it is not reached, and nothing waits for it.
class PointToCome final : public DevicePoint {
 public:
  // Sets the point, or takes it back: null.
  void set(PointPtr point) {
    const std::lock_guard lock(mutex_);
    point_ = std::move(point);
  }

  void wait(torch::Device device) const override {
    if (const PointPtr point = get()) point->wait(device);
  }
  bool reached() const override {
    const PointPtr point = get();
    return point != nullptr && point->reached();
  }

 private:
  PointPtr get() const {
    const std::lock_guard lock(mutex_);
    return point_;
  }

  mutable std::mutex mutex_;
  PointPtr point_;
};

}  // namespace cohort
