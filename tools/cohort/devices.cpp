// cohort devices: prints the devices that the library sees on this machine, and their memory; wings print more.
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <cstdlib>
#include <iostream>

#include "base/cpu_threads.h"
#include "base/extension.h"
#include "bytes_text.h"
#include "cluster/local_place.h"
#include "cohort/compute.h"
#include "cohort/device.h"
#include "collective/devices/nccl.h"
#include "commands.h"
#include "device/backend.h"
#include "device/visible_cards.h"
#include "strategy/memory_use.h"

namespace cohort::cli {

namespace {

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// Says which GPUs the environment shows, where that is not all of them.
void print_visible_cards() {
  const char* variable = std::getenv(kVisibleCards);
  const auto count = static_cast<int>(list_physical_devices("GPU").size());
  const std::string why =
      why_cards_are_hidden(variable == nullptr ? std::nullopt : std::optional<std::string>(variable), count);
  if (!why.empty()) std::cout << "visible   " << why << "\n";
}

// Which worker of this machine the launcher says that this process is, and the GPUs that are its own.
void print_local_place() {
  const LocalPlace place = local_place();
  const auto count = static_cast<int>(list_physical_devices("GPU").size());
  if (place.size == 1 || count == 0) return;
  std::cout << "place     worker " << place.rank << " of "
            << (place.size > 0 ? std::to_string(place.size) : std::string("several")) << " on this machine, with";
  for (const int gpu : gpus_of_worker(count, 0, place)) std::cout << " /GPU:" << gpu;
  std::cout << "\n";
}

void print_details(const PhysicalDevice& device) {
  const DeviceDetails details = get_device_details(device);
  if (details.device_name.empty()) return;
  std::cout << "          " << details.device_name;
  if (details.compute_capability) {
    std::cout << ", compute capability " << details.compute_capability->first << "."
              << details.compute_capability->second;
  }
  for (const std::string& text : {details.uuid, details.pci_address}) std::cout << (text.empty() ? "" : ", ") << text;
  if (details.numa_node) std::cout << ", NUMA node " << *details.numa_node;
  std::cout << "\n";
  if (details.peers.empty()) return;
  std::cout << "          reaches the memory of";
  for (const int peer : details.peers) std::cout << " " << PhysicalDevice{device.type, peer}.name();
  std::cout << "\n";
}

void print_allocator(const DeviceBackend& backend, torch::Device device) {
  const auto figures = backend.allocator(device);
  if (!figures) return;
  std::cout << "          allocator: " << bytes_text(figures->in_use) << " in use (most " << bytes_text(figures->peak)
            << "), " << bytes_text(figures->reserved) << " reserved (most " << bytes_text(figures->peak_reserved)
            << "), " << figures->retries << " retries, " << figures->failures << " failures\n";
}

void print_devices() {
  std::cout << "LibTorch " << TORCH_VERSION << ", NCCL " << (has_nccl() ? "yes" : "no") << ", " << hardware_cores()
            << " core(s)\n";
  for (const PhysicalDevice& device : list_physical_devices()) {
    const DeviceBackend& backend = *find_backend(device.type);
    const MemoryInfo memory = backend.memory(backend.device(device.index));
    std::cout << "physical  " << device.name() << "  memory " << gibibytes(memory.total) << ", available "
              << gibibytes(memory.available) << "\n";
    print_details(device);
    print_allocator(backend, backend.device(device.index));
  }
  print_visible_cards();
  print_local_place();
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
}

}  // namespace

Command add_devices(CLI::App& app) {
  std::vector<std::function<void()>> parts;
  for (const DevicesPart& part : extensions<DevicesPart>()) parts.push_back(part.add(app));
  return [parts] {
    print_devices();
    for (const auto& print : parts) print();
    return 0;
  };
}

}  // namespace cohort::cli
