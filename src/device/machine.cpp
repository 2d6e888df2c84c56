// The process's table of devices, which asks the back ends once what the machine has.
#include <algorithm>
#include <mutex>

#include "base/fail.h"
#include "cohort/compute.h"
#include "device/backend.h"

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
    physical.clear();
    for (const auto& backend : device_backends()) {
      for (int i = 0; i < backend->count(); ++i) physical.push_back({.type = std::string(backend->type()), .index = i});
    }
    visible = physical;
    parts.clear();
    used = false;
  }

  void add_new() {
    for (const auto& backend : device_backends()) {
      for (int i = 0; i < backend->count(); ++i) {
        const PhysicalDevice device{.type = std::string(backend->type()), .index = i};
        if (std::find(physical.begin(), physical.end(), device) != physical.end()) continue;
        physical.push_back(device);
        visible.push_back(device);
      }
    }
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
    for (const auto& backend : device_backends()) {
      if (!type.empty() && type != backend->type()) continue;
      int index = 0;
      for (const PhysicalDevice& device : visible) {
        if (device.type != backend->type()) continue;
        for (const LogicalDeviceOptions& part : parts_of(device)) {
          const DeviceSpec spec{.type = device.type, .index = index++};
          devices.push_back({spec.canonical(), backend->device(device.index), part.memory_limit_mb});
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
  const bool is_host = find_backend(device.type)->is_host();
  for (const LogicalDeviceOptions& part : parts) {
    if (is_host && part.memory_limit_mb) {
      fail<InvalidArgument>("[device] set_logical_devices: the CPU takes no memory limit");
    }
    if (!is_host && parts.size() > 1 && part.memory_limit_mb.value_or(0) <= 0) {
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

MemoryInfo memory_info(std::string_view name) {
  const torch::Device device = find_logical_device(name).torch_device;
  return backend_of(device).memory(device);
}

DeviceDetails get_device_details(const PhysicalDevice& device) {
  {
    const std::lock_guard lock(machine().mutex);
    require_physical(machine(), device);
  }
  const DeviceBackend& backend = *find_backend(device.type);
  return backend.details(backend.device(device.index));
}

void note_new_devices() {
  const std::lock_guard lock(machine().mutex);
  machine().add_new();
}

void reset_devices() {
  const std::lock_guard lock(machine().mutex);
  machine().reset();
}

}  // namespace cohort
