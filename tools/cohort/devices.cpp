// cohort devices: prints the devices that the library sees on this machine, and their memory; those of XLA's plugins,
// too.
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <iostream>
#include <memory>

#include "base/cpu_threads.h"
#include "cohort/device.h"
#include "collective/nccl/nccl_link.h"
#include "commands.h"
#include "device/backend.h"
#include "device/xla/find_plugin.h"
#include "device/xla/topology.h"
#include "xla_flags.h"

namespace cohort::cli {

namespace {

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

void print_devices() {
  std::cout << "LibTorch " << TORCH_VERSION << ", NCCL " << (has_nccl_link() ? "yes" : "no") << ", " << hardware_cores()
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
}

// Loading a plugin can take seconds and opens its devices, so that is done for one that is named only.
void print_plugins(const XlaFlags& flags) {
  if (!flags.plugin && flags.topology.empty()) {
    for (const XlaPluginPlace& place : list_xla_plugins()) {
      std::cout << "plugin    " << place.name << "  " << place.path.string() << ", named by " << place.source
                << "; --xla_plugin=" << place.name << " opens its devices\n";
    }
    return;
  }
  const XlaPluginPtr plugin = load_plugin(flags);
  std::cout << "plugin    " << plugin->name() << "  " << plugin->path().string() << ", PJRT " << plugin->version();
  const auto stablehlo = plugin->attributes().find("stablehlo_current_version");
  if (stablehlo != plugin->attributes().end()) std::cout << ", StableHLO " << to_text(stablehlo->second);
  std::cout << "\n";
  const XlaOptions options = parse_xla_options(flags.options);
  if (!flags.topology.empty()) {
    print_xla_devices(XlaTopology::create(plugin, flags.topology, {.options = options})->devices());
  } else {
    print_xla_devices(XlaClient::create(plugin, {.options = options})->devices());
  }
}

}  // namespace

Command add_devices(CLI::App& app) {
  const auto flags = std::make_shared<XlaFlags>();
  add_xla_flags(app, *flags);
  return [flags] {
    print_devices();
    print_plugins(*flags);
    return 0;
  };
}

}  // namespace cohort::cli
