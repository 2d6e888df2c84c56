// cohort devices: prints the devices that the library sees on this machine, and their memory.
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <iostream>

#include "base/cpu_threads.h"
#include "cohort/device.h"
#include "collective/algorithms/cross_device_sum.h"
#include "commands.h"
#include "device/backend.h"

namespace cohort::cli {

namespace {

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

int print_devices() {
  std::cout << "LibTorch " << TORCH_VERSION << ", NCCL " << (has_nccl_sum() ? "yes" : "no") << ", " << hardware_cores()
            << " core(s)\n";
  for (const PhysicalDevice& device : list_physical_devices()) {
    const DeviceBackend& backend = *find_backend(device.type);
    const MemoryInfo memory = backend.memory(backend.device(device.index));
    std::cout << "physical  " << device.name() << "  memory " << gibibytes(memory.total) << ", available "
              << gibibytes(memory.available) << "\n";
  }
  for (const LogicalDevice& device : list_logical_devices()) {
    std::cout << "logical   " << device.spec.to_string() << "  on " << device.torch_device << "\n";
  }
  const std::string core = blas_core();
  if (!core.empty()) std::cout << "BLAS      OpenBLAS for " << core << "\n";
  const std::string better = better_blas_core();
  if (!better.empty()) {
    std::cout << "advice    set OPENBLAS_CORETYPE=" << better
              << " before the program starts: this CPU can do more than " << core << "\n";
  }
  return 0;
}

}  // namespace

Command add_devices(CLI::App& /*app*/) {
  return print_devices;
}

}  // namespace cohort::cli
