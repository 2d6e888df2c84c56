#include "wings/xla/record/guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace cohort::record {

namespace {

thread_local c10::DeviceIndex current_index = 0;

// There are no streams: what is recorded has an order, and the runner keeps it.
class RecordGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  explicit RecordGuard(int devices) : devices_(static_cast<c10::DeviceIndex>(devices)) {}

  c10::DeviceType type() const override { return c10::DeviceType::XLA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {c10::DeviceType::XLA, current_index}; }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current_index = device.index();
  }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return devices_; }

 private:
  c10::DeviceIndex devices_;
};

}  // namespace

void register_guard(int devices) {
  static const RecordGuard guard(devices);
  static const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::XLA, &guard);
}

}  // namespace cohort::record
