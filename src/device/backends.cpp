// The table of back ends. That of CPUs comes first; the others are extensions.
#include <ATen/Functions.h>

#include <algorithm>

#include "base/extension.h"
#include "base/fail.h"
#include "base/tracer.h"
#include "device/backend.h"
#include "device/cpu/cpu.h"
#include "device/layout.h"

namespace cohort {

namespace {

class NumberThatIsHere final : public ArrivingNumber {
 public:
  explicit NumberThatIsHere(double value) : value_(value) {}
  double value() const override { return value_; }

 private:
  double value_;
};

std::vector<std::unique_ptr<DeviceBackend>>& table() {
  static auto backends = [] {
    std::vector<std::unique_ptr<DeviceBackend>> list;
    const auto add = [&](const BackendMaker& maker) {
      if (auto backend = maker.make()) list.push_back(std::move(backend));
    };
    add({make_cpu_backend});
    for (const BackendMaker& maker : extensions<BackendMaker>()) add(maker);
    return list;
  }();
  return backends;
}

}  // namespace

std::shared_ptr<const ArrivingNumber> DeviceBackend::fetch(const torch::Tensor& number) const {
  return std::make_shared<NumberThatIsHere>(number.item().toDouble());
}

torch::Tensor DeviceBackend::host_memory(int64_t size, torch::ScalarType dtype) const {
  return at::empty({size}, at::TensorOptions().dtype(dtype).device(torch::kCPU));
}

void DeviceBackend::move(torch::nn::Module& module, torch::Device device) const {
  module.to(device);
  if (is_card()) lay_out_channels_last(module);
}

const std::vector<std::unique_ptr<DeviceBackend>>& device_backends() {
  return table();
}

void put_device_backend(std::unique_ptr<DeviceBackend> backend) {
  auto& list = table();
  const auto same = [&](const auto& each) { return each->type() == backend->type(); };
  const auto place = std::find_if(list.begin(), list.end(), same);
  if (place == list.end()) {
    list.push_back(std::move(backend));
  } else {
    *place = std::move(backend);
  }
}

const DeviceBackend& backend_of(torch::Device device) {
  std::string known;
  for (const auto& backend : device_backends()) {
    if (backend->torch_type() == device.type()) return *backend;
    known += c10::str(known.empty() ? "" : ", ", backend->type());
  }
  fail<Unimplemented>("[device] there is no back end for ", device.str(), " in this build, only for ", known);
}

const DeviceBackend* find_backend(std::string_view type) {
  const auto& all = device_backends();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each->type() == type; });
  return found == all.end() ? nullptr : found->get();
}

void begin_kernel(std::span<const torch::Tensor> tensors, const std::function<void()>& kernel) {
  if (Tracer* const tracer = Tracer::current()) tracer->note_kernel(tensors);
  backend_of(tensors.front().device()).begin_kernel(tensors, kernel);
}

bool captures(torch::Device device) {
  const auto& all = device_backends();
  return std::any_of(all.begin(), all.end(), [&](const auto& backend) {
    return backend->torch_type() == device.type() && backend->captures();
  });
}

bool is_gpu(torch::Device device) {
  return device.is_cuda();
}

}  // namespace cohort
