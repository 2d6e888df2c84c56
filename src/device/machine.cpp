// The process's table of devices.
#include <torch/cuda.h>

#include <algorithm>
#include <mutex>

#include "base/fail.h"
#include "cohort/device.h"

namespace cohort {

namespace {

struct Machine {
  std::mutex mutex;
  std::vector<PhysicalDevice> physical;
  std::vector<PhysicalDevice> visible;
  // Parts of each physical device that was split; the others are one logical device.
  std::vector<std::pair<PhysicalDevice, std::vector<LogicalDeviceOptions>>> parts;
  bool used = false;

  Machine() { reset(); }

  void reset() {
    physical = {{.type = "CPU", .index = 0}};
    const auto gpus = static_cast<int>(torch::cuda::device_count());
    for (int i = 0; i < gpus; ++i) physical.push_back({.type = "GPU", .index = i});
    visible = physical;
    parts.clear();
    used = false;
  }

  std::vector<LogicalDeviceOptions> parts_of(const PhysicalDevice& device) const {
    for (const auto& [owner, list] : parts) {
      if (owner == device) return list;
    }
    return {{}};
  }

  void set_parts(const PhysicalDevice& device, std::vector<LogicalDeviceOptions> list) {
    std::erase_if(parts, [&](const auto& item) { return item.first == device; });
    parts.emplace_back(device, std::move(list));
  }

  std::vector<LogicalDevice> logical(std::string_view type) const {
    std::vector<LogicalDevice> devices;
    for (const std::string_view kind : {"CPU", "GPU"}) {
      if (!type.empty() && type != kind) continue;
      int index = 0;
      for (const PhysicalDevice& device : visible) {
        if (device.type != kind) continue;
        const torch::Device where = kind == "CPU"
                                        ? torch::Device(torch::kCPU)
                                        : torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(device.index));
        for (const LogicalDeviceOptions& part : parts_of(device)) {
          const DeviceSpec spec{.type = std::string(kind), .index = index++};
          devices.push_back({spec.canonical(), where, part.memory_limit_mb});
        }
      }
    }
    return devices;
  }

  void require_unused(std::string_view what) const {
    if (!used) return;
    fail<FailedPrecondition>("[device] ", what,
                             ": logical devices are already in use; call it at the start of the program");
  }
};

Machine& machine() {
  static Machine instance;
  return instance;
}

std::vector<PhysicalDevice> of_type(const std::vector<PhysicalDevice>& devices, std::string_view type) {
  std::vector<PhysicalDevice> list;
  for (const PhysicalDevice& device : devices) {
    if (type.empty() || device.type == type) list.push_back(device);
  }
  return list;
}

void require_physical(const Machine& machine, const PhysicalDevice& device) {
  if (std::find(machine.physical.begin(), machine.physical.end(), device) != machine.physical.end()) return;
  fail<NotFound>("[device] there is no ", device.name(), " on this machine");
}

}  // namespace

std::string PhysicalDevice::name() const {
  return "/physical_device:" + type + ":" + std::to_string(index);
}

std::vector<PhysicalDevice> list_physical_devices(std::string_view type) {
  const std::lock_guard lock(machine().mutex);
  return of_type(machine().physical, type);
}

std::vector<LogicalDevice> list_logical_devices(std::string_view type) {
  const std::lock_guard lock(machine().mutex);
  machine().used = true;
  return machine().logical(type);
}

void set_visible_devices(const std::vector<PhysicalDevice>& devices, std::string_view type) {
  const std::lock_guard lock(machine().mutex);
  machine().require_unused("set_visible_devices");
  for (const PhysicalDevice& device : devices) {
    require_physical(machine(), device);
    if (type.empty() || device.type == type) continue;
    fail<InvalidArgument>("[device] set_visible_devices: ", device.name(), " is no ", type);
  }
  std::vector<PhysicalDevice> visible;
  for (const PhysicalDevice& device : machine().physical) {
    const bool listed = std::find(devices.begin(), devices.end(), device) != devices.end();
    const bool other_type = !type.empty() && device.type != type;
    const bool was_visible =
        std::find(machine().visible.begin(), machine().visible.end(), device) != machine().visible.end();
    if (listed || (other_type && was_visible)) visible.push_back(device);
  }
  machine().visible = std::move(visible);
}

std::vector<PhysicalDevice> get_visible_devices(std::string_view type) {
  const std::lock_guard lock(machine().mutex);
  return of_type(machine().visible, type);
}

void set_logical_devices(const PhysicalDevice& device, const std::vector<LogicalDeviceOptions>& parts) {
  const std::lock_guard lock(machine().mutex);
  require_physical(machine(), device);
  machine().require_unused("set_logical_devices");
  if (parts.empty()) fail<InvalidArgument>("[device] set_logical_devices: ", device.name(), " needs at least one part");
  for (const LogicalDeviceOptions& part : parts) {
    if (device.type == "CPU" && part.memory_limit_mb) {
      fail<InvalidArgument>("[device] set_logical_devices: the CPU takes no memory limit");
    }
    if (device.type == "GPU" && parts.size() > 1 && part.memory_limit_mb.value_or(0) <= 0) {
      fail<InvalidArgument>("[device] set_logical_devices: ", device.name(), " is split in ", parts.size(),
                            ", so each part needs a positive memory_limit_mb");
    }
  }
  machine().set_parts(device, parts);
}

void set_logical_devices(const PhysicalDevice& device, int parts) {
  if (parts < 1) fail<InvalidArgument>("[device] set_logical_devices: ", parts, " parts, wanted 1 or more");
  set_logical_devices(device, std::vector<LogicalDeviceOptions>(static_cast<std::size_t>(parts)));
}

std::vector<std::string> cpu_devices(int count) {
  if (count < 1) fail<InvalidArgument>("[device] cpu_devices: ", count, " devices, wanted 1 or more");
  const std::lock_guard lock(machine().mutex);
  const PhysicalDevice cpu{.type = "CPU", .index = 0};
  const auto have = machine().parts_of(cpu).size();
  if (have < static_cast<std::size_t>(count)) {
    machine().set_parts(cpu, std::vector<LogicalDeviceOptions>(static_cast<std::size_t>(count)));
  }
  machine().used = true;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("/CPU:" + std::to_string(i));
  return names;
}

LogicalDevice find_logical_device(const DeviceSpec& spec) {
  const DeviceSpec wanted = spec.canonical();
  std::string known;
  for (LogicalDevice& device : list_logical_devices()) {
    if (device.spec == wanted) return std::move(device);
    known += (known.empty() ? "" : ", ") + device.name();
  }
  fail<NotFound>("[device] there is no ", spec.to_string(), " here; there are ", known);
}

LogicalDevice find_logical_device(std::string_view name) {
  return find_logical_device(DeviceSpec::parse(name));
}

void reset_devices() {
  const std::lock_guard lock(machine().mutex);
  machine().reset();
}

}  // namespace cohort
