#include "xla_flags.h"

#include <fmt/format.h>

#include <array>
#include <iostream>

#include "device/xla/find_plugin.h"

namespace cohort::cli {

void add_xla_flags(CLI::App& app, XlaFlags& flags) {
  app.add_option(
      "--xla_plugin", flags.plugin,
      "the PJRT plugin of XLA: the path of a shared library, or the name of one that was found (tpu, cuda, cpu)");
  app.add_option("--xla_options", flags.options,
                 "options that the plugin takes, as name=value,name=value, such as cpu_device_count=8");
  app.add_option(
      "--tpu_topology", flags.topology,
      "devices that need not be here, by a name that the plugin knows, such as v5e:4x4; the plugin is that of "
      "TPUs if none is named");
}

XlaPluginPtr load_plugin(const XlaFlags& flags) {
  const std::string fallback = flags.topology.empty() ? "" : "tpu";
  return XlaPlugin::load(find_xla_plugin(flags.plugin.value_or(fallback), "--xla_plugin"));
}

void print_xla_devices(const std::vector<XlaDevice>& devices) {
  for (const XlaDevice& device : devices) {
    std::cout << "xla       " << device.id << "  " << device.kind;
    if (!device.coordinates.empty()) {
      std::cout << "  coordinates " << to_text(device.coordinates) << ", core " << device.core_on_chip;
    }
    std::cout << "  memory " << (device.memory_bytes ? bytes_text(*device.memory_bytes) : "not told");
    if (device.process != 0) std::cout << "  process " << device.process;
    std::cout << "\n";
  }
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits.at(unit));
}

}  // namespace cohort::cli
