// Side streams by LibTorch's general names for streams and events. They are of high priority, so that a message does
// not wait for the kernels that were given to the device after it.
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/side_streams.h"

namespace cohort {

namespace {

class TorchPoint final : public DevicePoint {
 public:
  explicit TorchPoint(const c10::Stream& stream) : event_(stream.device_type()) { event_.record(stream); }

  void wait(torch::Device device) const override {
    event_.block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  // Without the device a thread that computes nowhere would make itself at home on the first one.
  bool reached() const override {
    const c10::DeviceGuard guard(event_.device());
    return event_.query();
  }
  void block(const c10::Stream& stream) const { event_.block(stream); }

 private:
  c10::Event event_;
};

class TorchSideStreams final : public SideStreams {
 public:
  explicit TorchSideStreams(const std::vector<torch::Device>& devices) : guard_(devices.front().type()) {
    for (const torch::Device device : devices) {
      streams_.push_back(guard_.getStreamFromGlobalPool(device, /*isHighPriority=*/true));
    }
  }

  PointPtr mark(std::size_t device) const override {
    return std::make_shared<TorchPoint>(guard_.getStream(streams_[device].device()));
  }

  void follow(std::size_t device, const PointPtr& point) override {
    dynamic_cast<const TorchPoint&>(*point).block(streams_[device]);
  }

  // A copy from one device to another goes by the current streams of both, so all of them are these.
  void begin(std::size_t device, std::function<void()> work, std::span<const torch::Tensor> tensors) override {
    const c10::MultiStreamGuard all(streams_);
    const c10::StreamGuard own(streams_[device]);
    for (const torch::Tensor& tensor : tensors) {
      if (tensor.numel() > 0) tensor.record_stream(streams_[device]);
    }
    work();
  }

  PointPtr record(std::size_t device) override { return std::make_shared<TorchPoint>(streams_[device]); }

 private:
  c10::impl::VirtualGuardImpl guard_;
  std::vector<c10::Stream> streams_;
};

}  // namespace

std::unique_ptr<SideStreams> make_torch_side_streams(const std::vector<torch::Device>& devices) {
  return std::make_unique<TorchSideStreams>(devices);
}

}  // namespace cohort
