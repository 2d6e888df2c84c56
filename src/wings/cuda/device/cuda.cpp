// The GPUs' back end. Copies run on a stream of their own, from page-locked memory, beside what the device computes;
// what computes waits for them on the device, not on the host. Streams and events are LibTorch's, by their general
// names, so that only the figures of memory and waits of the host need CUDA's headers.
#include "wings/cuda/device/cuda.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include "base/fail.h"
#include "base/libtorch_compat.h"
#include "device/compute.h"
#include "device/numa.h"
#include "wings/cuda/device/cuda_graph.h"
#include "wings/cuda/device/details.h"

namespace cohort {

namespace {

class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(const c10::Stream& stream) : device_(stream.device()), event_(stream.device_type()) {
    event_.record(stream);
  }

  // A replica computes on its device's default stream, unless the program has made another one current.
  void wait(std::span<const torch::Tensor> tensors) const override {
    const c10::impl::VirtualGuardImpl streams(device_.type());
    const c10::Stream standard = streams.getDefaultStream(device_);
    const c10::Stream current = streams.getStream(device_);
    make_wait(standard, tensors);
    if (current != standard) make_wait(current, tensors);
  }
  // Without the device a thread that computes nowhere would make itself at home on the first one.
  bool reached() const override {
    const c10::DeviceGuard guard(device_);
    return event_.query();
  }

 private:
  // The allocator hands the memory of a tensor on once the streams that are noted with it have come so far.
  void make_wait(const c10::Stream& stream, std::span<const torch::Tensor> tensors) const {
    event_.block(stream);
    for (const torch::Tensor& tensor : tensors) {
      if (tensor.numel() > 0) tensor.record_stream(stream);
    }
  }

  torch::Device device_;
  c10::Event event_;
};

class CudaStream final : public DeviceStream {
 public:
  explicit CudaStream(torch::Device device)
      : stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)) {}

  // LibTorch keeps page-locked memory that is given up from being used again until the copies from it are done. Other
  // memory is read before the call returns.
  torch::Tensor copy(const torch::Tensor& host) override {
    if (!host.is_cpu()) {  // made by the calling thread, as far as the card knows
      torch::Tensor there = host.to(stream_.device());
      follow();
      if (there.numel() > 0) there.record_stream(stream_);
      return there;
    }
    const c10::StreamGuard guard(stream_);
    return host.to(stream_.device(), /*non_blocking=*/true);
  }
  // LibTorch keeps the locked pages that a stream gave up, for the stream of the next pass over the data.
  torch::Tensor make_staging(int64_t bytes) override {
    return at::empty({bytes}, at::TensorOptions(torch::kByte).pinned_memory(true));
  }
  void compute(const std::function<void()>& work) override {
    const c10::StreamGuard guard(stream_);
    work();
  }

  std::shared_ptr<const DeviceEvent> record() override { return std::make_shared<CudaEvent>(stream_); }

  // The allocator does not hand the tensor's memory on before the copy is done.
  void fetch(const torch::Tensor& tensor, const torch::Tensor& host) override {
    if (tensor.numel() == 0) return;
    follow();
    const c10::StreamGuard guard(stream_);
    host.copy_(tensor, /*non_blocking=*/true);
    tensor.record_stream(stream_);
  }

  void synchronize() override {
    const c10::impl::VirtualGuardImpl streams(stream_.device_type());
    streams.getDefaultStream(stream_.device()).synchronize();
    streams.getStream(stream_.device()).synchronize();
    stream_.synchronize();
  }

 private:
  // Has the stream wait for what the calling thread has given the device, and replicas, which sum their gradients on
  // the default streams.
  void follow() const {
    const c10::impl::VirtualGuardImpl streams(stream_.device_type());
    for (const c10::Stream& maker : {streams.getDefaultStream(stream_.device()), streams.getStream(stream_.device())}) {
      c10::Event made(stream_.device_type());
      made.record(maker);
      made.block(stream_);
    }
  }

  c10::Stream stream_;
};

// Copied into pinned memory, so that the host goes on.
class CudaNumber final : public ArrivingNumber {
 public:
  explicit CudaNumber(const torch::Tensor& number)
      : here_(at::empty({}, at::TensorOptions().dtype(torch::kDouble).pinned_memory(true))) {
    const c10::DeviceGuard guard(number.device());
    here_.copy_(number.reshape({}), /*non_blocking=*/true);
    arrives_.record();
  }
  double value() const override {
    arrives_.synchronize();
    return *here_.data_ptr<double>();
  }

 private:
  torch::Tensor here_;
  at::cuda::CUDAEvent arrives_;
};

class CudaBackend final : public DeviceBackend {
 public:
  std::string_view type() const override { return "GPU"; }
  torch::DeviceType torch_type() const override { return torch::kCUDA; }
  int count() const override { return static_cast<int>(c10::cuda::device_count()); }
  torch::Device device(int index) const override { return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)}; }
  bool is_host() const override { return false; }
  bool is_card() const override { return true; }
  bool fuses_attention() const override { return compat::kFusesAttention; }
  DeviceDetails details(torch::Device device) const override { return cuda_details(device.index()); }
  std::vector<int> near_processors(torch::Device device) const override {
    const std::optional<int> node = cuda_details(device.index()).numa_node;
    return node ? processors_of_node(kSysfs, *node) : std::vector<int>();
  }
#ifdef COHORT_CUDA_KERNELS
  kernels::Reach kernels() const override {
    return kernels::Reach::kCuda;
  }
#endif
  bool trains_in(torch::ScalarType /*dtype*/) const override {
    return true;
  }

  MemoryInfo memory(torch::Device device) const override {
    const c10::DeviceGuard guard(device);
    // LibTorch's allocator has no figures before its first tensor.
    const torch::Tensor first = at::empty({1}, at::TensorOptions().device(device));
    std::size_t available = 0;
    std::size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&available, &total));
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    const auto& tensors = stats.allocated_bytes.front();  // the statistics of all pools
    return {.total = static_cast<int64_t>(total),
            .available = static_cast<int64_t>(available),
            .in_use = tensors.current,
            .peak = tensors.peak};
  }
  std::optional<AllocatorFigures> allocator(torch::Device device) const override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    const auto& tensors = stats.allocated_bytes.front();  // the statistics of all pools
    const auto& reserved = stats.reserved_bytes.front();
    return AllocatorFigures{.in_use = tensors.current,
                            .peak = tensors.peak,
                            .reserved = reserved.current,
                            .peak_reserved = reserved.peak,
                            .retries = stats.num_alloc_retries,
                            .failures = stats.num_ooms};
  }

  // LibTorch's allocator for GPUs keeps what is freed by itself.
  void prepare() const override {
    begin_convolution_search();
  }
  at::Generator make_generator(torch::Device device) const override {
    return at::globalContext().defaultGenerator(device).clone();
  }
  std::shared_ptr<const ArrivingNumber> fetch(const torch::Tensor& number) const override {
    return std::make_shared<CudaNumber>(number);
  }
  std::unique_ptr<LeavingTensors> leave(const std::vector<torch::Tensor>& tensors) const override {
    return leave_beside(tensors, /*pins=*/true);
  }
  std::unique_ptr<DeviceStream> make_stream(torch::Device device) const override {
    return std::make_unique<CudaStream>(device);
  }
  torch::Tensor host_memory(int64_t size, torch::ScalarType dtype) const override {
    return at::empty({size}, at::TensorOptions().dtype(dtype).pinned_memory(size > 0));
  }
  std::unique_ptr<SideStreams> make_side_streams(const std::vector<torch::Device>& devices) const override {
    return make_torch_side_streams(devices);
  }
  bool captures() const override {
    return true;
  }
  std::unique_ptr<DeviceGraph> make_graph(torch::Device device,
                                          const std::vector<at::Generator>& generators) const override {
    return make_cuda_graph(device, generators);
  }
};

}  // namespace

void* kernels::cuda::current_stream() {
  return at::cuda::getCurrentCUDAStream();
}

void kernels::cuda::require_launched(int error) {
  if (error == cudaSuccess) return;
  fail<Internal>("[device] a kernel was not begun: ", cudaGetErrorString(static_cast<cudaError_t>(error)));
}

std::unique_ptr<DeviceBackend> make_cuda_backend() {
  return std::make_unique<CudaBackend>();
}

}  // namespace cohort
