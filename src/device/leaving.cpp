#include "device/leaving.h"

#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>

#include "base/log.h"
#include "device/backend.h"

namespace cohort {

namespace {

torch::Tensor copied_to_host(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true).contiguous();
}

class Arrived final : public LeavingTensors {
 public:
  explicit Arrived(std::vector<torch::Tensor> tensors) : tensors_(std::move(tensors)) {}
  std::vector<torch::Tensor> take() override { return std::move(tensors_); }

 private:
  std::vector<torch::Tensor> tensors_;
};

// Tensors of several devices, which leave each by themselves.
class OfSeveral final : public LeavingTensors {
 public:
  explicit OfSeveral(const std::vector<torch::Tensor>& tensors) : size_(tensors.size()) {
    std::map<std::string, std::vector<std::size_t>> places;
    for (std::size_t i = 0; i < tensors.size(); ++i) places[tensors[i].device().str()].push_back(i);
    for (auto& [name, list] : places) {
      std::vector<torch::Tensor> own;
      for (const std::size_t place : list) own.push_back(tensors[place]);
      parts_.push_back({std::move(list), backend_of(own.front().device()).leave(own)});
    }
  }

  std::vector<torch::Tensor> take() override {
    std::vector<torch::Tensor> all(size_);
    for (Part& part : parts_) {
      std::vector<torch::Tensor> own = part.tensors->take();
      for (std::size_t i = 0; i < own.size(); ++i) all[part.places[i]] = std::move(own[i]);
    }
    return all;
  }

 private:
  struct Part {
    std::vector<std::size_t> places;
    std::unique_ptr<LeavingTensors> tensors;
  };

  std::size_t size_;
  std::vector<Part> parts_;
};

// Has a stream's work from now on wait for what another one has been given.
void let_wait(const c10::Stream& stream, const c10::Stream& other) {
  if (stream == other) return;
  c10::Event given(other.device_type());
  given.record(other);
  given.block(stream);
}

class BesideWork final : public LeavingTensors {
 public:
  BesideWork(std::vector<torch::Tensor> copies, bool pins)
      : device_(copies.front().device()), copies_(std::move(copies)), pins_(pins), made_(device_.type()) {
    made_.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }

  std::vector<torch::Tensor> take() override {
    const c10::DeviceGuard guard(device_);
    const c10::Stream beside = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
    made_.block(beside);
    std::vector<torch::Tensor> here;
    for (torch::Tensor& copy : copies_) {
      here.push_back(bring(copy, beside));
      copy.reset();  // the stream has been waited for
    }
    return here;
  }

 private:
  static constexpr int64_t kStep = int64_t{32} << 20;  // bytes that are page-locked: more are no faster

  torch::Tensor bring(const torch::Tensor& from, const c10::Stream& beside) {
    const int64_t elements = std::max<int64_t>(1, kStep / static_cast<int64_t>(from.element_size()));
    const torch::Tensor flat = from.view(-1);
    torch::Tensor host = at::empty(from.sizes(), at::TensorOptions(from.dtype()));
    const torch::Tensor to = host.view(-1);
    for (int64_t begin = 0; begin < flat.numel(); begin += elements) {
      const int64_t count = std::min(elements, flat.numel() - begin);
      torch::Tensor locked = piece(from.scalar_type(), count);
      {
        const c10::StreamGuard guard(beside);
        locked.copy_(flat.narrow(0, begin, count), /*non_blocking=*/true);
      }
      beside.synchronize();
      to.narrow(0, begin, count).copy_(locked);
    }
    return host;
  }

  torch::Tensor piece(torch::ScalarType dtype, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(c10::elementSize(dtype));
    if (!locked_.defined()) locked_ = at::empty({kStep}, at::TensorOptions(torch::kByte).pinned_memory(pins_));
    return locked_.narrow(0, 0, bytes).view(dtype);
  }

  torch::Device device_;
  std::vector<torch::Tensor> copies_;
  bool pins_;
  c10::Event made_;
  torch::Tensor locked_;
};

}  // namespace

std::unique_ptr<LeavingTensors> DeviceBackend::leave(const std::vector<torch::Tensor>& tensors) const {
  std::vector<torch::Tensor> here;
  for (const torch::Tensor& tensor : tensors) here.push_back(copied_to_host(tensor));
  return std::make_unique<Arrived>(std::move(here));
}

std::unique_ptr<LeavingTensors> leave(const std::vector<torch::Tensor>& tensors) {
  return std::make_unique<OfSeveral>(tensors);
}

// Replicas compute on the default stream, unless the program has made another one current: the copies are behind the
// work of both, and before what comes next on either.
std::unique_ptr<LeavingTensors> leave_beside(const std::vector<torch::Tensor>& tensors, bool pins) {
  const torch::Device device = tensors.front().device();
  const c10::DeviceGuard guard(device);
  const c10::impl::VirtualGuardImpl streams(device.type());
  const c10::Stream standard = streams.getDefaultStream(device);
  const c10::Stream current = streams.getStream(device);
  let_wait(current, standard);
  std::vector<torch::Tensor> copies;
  try {
    for (const torch::Tensor& tensor : tensors) {
      copies.push_back(tensor.detach().clone(torch::MemoryFormat::Contiguous));
    }
  } catch (const c10::OutOfMemoryError&) {
    copies.clear();
    warn_once(c10::str("[checkpoint] ", device.str(),
                       " has no memory for a copy of what is saved: ", "its steps wait while that goes to the host"));
    for (const torch::Tensor& tensor : tensors) copies.push_back(copied_to_host(tensor));
    return std::make_unique<Arrived>(std::move(copies));
  }
  let_wait(standard, current);
  return std::make_unique<BesideWork>(std::move(copies), pins);
}

}  // namespace cohort
