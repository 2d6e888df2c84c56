// The CPU's back end. Its operations are done when they return and its tensors lie in the host's memory, so a copy is
// the tensor itself and no event has anything to wait for.
#include "device/cpu/cpu.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "device/cpu/block_cache.h"
#include "device/host_random.h"

namespace cohort {

namespace {

class DoneEvent final : public DeviceEvent {
 public:
  void wait(std::span<const torch::Tensor> /*tensors*/) const override {}
  bool reached() const override { return true; }
};

class HostStream final : public DeviceStream {
 public:
  torch::Tensor copy(const torch::Tensor& host) override { return host; }
  std::shared_ptr<const DeviceEvent> record() override { return std::make_shared<DoneEvent>(); }
  void fetch(const torch::Tensor& tensor, const torch::Tensor& host) override { host.copy_(tensor); }
  void synchronize() override {}
};

// Returns the bytes that a line of a file under /proc gives in kB; 0 if there is no such line.
int64_t bytes_in(const char* file, const std::string& key) {
  std::ifstream lines(file);
  std::string word;
  while (lines >> word) {
    int64_t kilobytes = 0;
    if (word == key && lines >> kilobytes) return kilobytes << 10;
    std::getline(lines, word);
  }
  return 0;
}

class CpuBackend final : public DeviceBackend {
 public:
  std::string_view type() const override { return "CPU"; }
  torch::DeviceType torch_type() const override { return torch::kCPU; }
  int count() const override { return 1; }
  torch::Device device(int /*index*/) const override { return torch::kCPU; }
  bool is_host() const override { return true; }
  kernels::Reach kernels() const override { return kernels::Reach::kHost; }
  bool trains_in(torch::ScalarType dtype) const override { return dtype != torch::kHalf; }

  MemoryInfo memory(torch::Device /*device*/) const override {
    const auto pages = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES));
    return {.total = pages * static_cast<int64_t>(::sysconf(_SC_PAGE_SIZE)),
            .available = bytes_in("/proc/meminfo", "MemAvailable:"),
            .in_use = bytes_in("/proc/self/status", "VmRSS:"),
            .peak = bytes_in("/proc/self/status", "VmHWM:")};
  }

  void prepare() const override { install_block_cache(); }
  at::Generator make_generator(torch::Device /*device*/) const override {
    return make_host_generator(host_generator().current_seed());
  }
  std::unique_ptr<DeviceStream> make_stream(torch::Device /*device*/) const override {
    return std::make_unique<HostStream>();
  }
};

}  // namespace

std::unique_ptr<DeviceBackend> make_cpu_backend() {
  return std::make_unique<CpuBackend>();
}

}  // namespace cohort
