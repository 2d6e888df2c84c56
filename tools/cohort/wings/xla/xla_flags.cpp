#include "wings/xla/xla_flags.h"

#include <iostream>
#include <memory>

#include "bytes_text.h"
#include "wings/xla/device/find_plugin.h"
#include "wings/xla/device/topology.h"

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

namespace {

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

// Prints the plugins that there are, or the devices of the one that the flags name. Loading a plugin can take seconds
// and opens its devices, so that is done for one that is named only.
void print_xla_plugins(const XlaFlags& flags) {
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

std::function<void()> add_plugins(CLI::App& app) {
  const auto flags = std::make_shared<XlaFlags>();
  add_xla_flags(app, *flags);
  return [flags] { print_xla_plugins(*flags); };
}

}  // namespace cohort::cli
