#include "strategy/strategies/devices.h"

#include <algorithm>

#include "base/fail.h"
#include "base/log.h"
#include "device/backend.h"

namespace cohort {

namespace {

void require_local(std::string_view strategy, const DeviceSpec& spec) {
  const DeviceSpec local = spec.canonical();
  if (local.job == "localhost" && local.task == 0 && local.replica == 0) return;
  fail<InvalidArgument>("[strategy] ", strategy, ": ", spec.to_string(),
                        " belongs to another process; this strategy uses the ", "devices of its own only");
}

}  // namespace

std::vector<LogicalDevice> choose_devices(std::string_view strategy, const std::vector<std::string>& names) {
  return choose_worker_devices(strategy, names, {});
}

std::vector<LogicalDevice> choose_worker_devices(std::string_view strategy, const std::vector<std::string>& names,
                                                 const LocalPlace& place) {
  if (names.empty()) {
    const std::vector<LogicalDevice> gpus = list_logical_devices("GPU");
    std::vector<LogicalDevice> own;
    for (const int gpu : gpus_of_worker(static_cast<int>(gpus.size()), 0, place)) {
      own.push_back(gpus[static_cast<std::size_t>(gpu)]);
    }
    if (own.size() < gpus.size()) {
      log().info("[strategy] {}: worker {} of {} on this machine uses {} of its {} GPUs, from {} on", strategy,
                 place.rank, place.size, own.size(), gpus.size(), own.front().name());
    }
    if (!own.empty()) return own;
    log().info("[strategy] {}: no GPU is visible, using the CPU", strategy);
    return {find_logical_device("/CPU:0")};
  }
  std::vector<LogicalDevice> devices;
  for (const std::string& name : names) {
    require_local(strategy, DeviceSpec::parse(name));
    LogicalDevice device = find_logical_device(name);
    for (const LogicalDevice& other : devices) {
      if (!(other.spec == device.spec)) continue;
      fail<InvalidArgument>("[strategy] ", strategy, ": ", device.spec.to_string(),
                            " is named twice; every replica needs a device ",
                            "of its own (set_logical_devices and cpu_devices split one)");
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

void require_lines(std::string_view speaker, const std::vector<LogicalDevice>& devices) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const torch::Device device = devices[i].torch_device;
    const auto end = devices.begin() + static_cast<std::ptrdiff_t>(i);
    const auto same = [&](const LogicalDevice& other) { return other.torch_device == device; };
    if (device.is_cpu() || std::none_of(devices.begin(), end, same)) continue;
    fail<Unimplemented>(speaker, " ", devices[i].name(), " is a logical device of a GPU that has another replica; ",
                        "LibTorch computes their backward passes in one thread, where one would wait for the other");
  }
}

StrategyPlan local_plan(std::string name, std::vector<LogicalDevice> devices) {
  std::vector<DeviceSpec> specs;
  for (const LogicalDevice& device : devices) specs.push_back(device.spec);
  return {.name = std::move(name),
          .topology = Topology::batch({specs}),
          .devices = devices,
          .placement = make_replicated(devices)};
}

}  // namespace cohort
