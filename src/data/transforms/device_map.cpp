// A map that a strategy can leave to its devices. Everybody else has it done on the host.
#include "data/device_map.h"

#include "data/node.h"

namespace cohort {

namespace {

class DeviceMapNode final : public UnaryNode {
 public:
  DeviceMapNode(NodePtr input, DeviceMapPtr map)
      : UnaryNode(input),
        left_{.batches = input, .map = map},
        on_host_(make_map(std::move(input),
                          [map = std::move(map)](const Example& batch) { return (*map)(batch, kernels::Reach::kHost); },
                          {})) {}

  std::unique_ptr<ElementIterator> iterate(const PassOptions& options) const override {
    return on_host_->iterate(options);
  }
  LeftToDevices left_to_devices() const override { return left_; }

 private:
  LeftToDevices left_;
  NodePtr on_host_;
};

}  // namespace

NodePtr make_device_map(NodePtr input, DeviceMapPtr map) {
  return std::make_shared<DeviceMapNode>(std::move(input), std::move(map));
}

}  // namespace cohort
