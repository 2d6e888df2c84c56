// Devices: their names, the devices of this machine, and the placement of tensors and modules.
//
// Names follow TensorFlow's grammar: "/job:worker/replica:0/task:1/device:GPU:0", or short "/GPU:0", "gpu:0", "CPU".
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort {

// A device's name, any part of which may be absent. A value.
struct DeviceSpec {
  std::optional<std::string> job;   // the job of the task, such as "worker"
  std::optional<int> replica;       // the replica, a number that TensorFlow's grammar has and nothing here depends on
  std::optional<int> task;          // the index of the task
  std::optional<std::string> type;  // CPU, GPU, TPU, EPU, CUSTOM
  std::optional<int> index;         // absent with a type: any ("*")

  // Parses a name, whose parts may have any order. InvalidArgument: an unknown attribute or type, two types, or an
  // index that is no number.
  static DeviceSpec parse(std::string_view text);

  // Returns "/job:worker/replica:0/task:1/device:GPU:0" with the parts that are there. An absent index prints as *.
  std::string to_string() const;
  // Returns "/GPU:0", or an empty text without a type.
  std::string short_form() const;

  // Returns this name with absent parts taken from the outer one, as nested scopes combine.
  DeviceSpec merged_into(const DeviceSpec& outer) const;
  // Returns this name with absent parts filled: job localhost, replica 0, task 0, type CPU, index 0.
  DeviceSpec canonical() const;
  // Returns CPU:0 of the same task.
  DeviceSpec host() const;

  bool operator==(const DeviceSpec&) const = default;
};

// A device of this machine.
struct PhysicalDevice {
  std::string type;  // CPU or GPU
  int index = 0;     // its number among those of its type, from 0

  std::string name() const;  // returns "/physical_device:GPU:0"
  bool operator==(const PhysicalDevice&) const = default;
};

// A device on which computations are placed: a physical one or a part of it.
struct LogicalDevice {
  DeviceSpec spec;                           // canonical
  torch::Device torch_device = torch::kCPU;  // the device that LibTorch computes on; parts of one GPU share it
  std::optional<int64_t> memory_limit_mb;    // as configured, not enforced: LibTorch has one allocator a GPU

  // Returns the short form of the name: "/CPU:0".
  std::string name() const { return spec.short_form(); }
};

// One part of a physical device; see set_logical_devices().
struct LogicalDeviceOptions {
  // The memory in megabytes. It is needed for each part if a GPU is split into several, and refused for the CPU.
  std::optional<int64_t> memory_limit_mb = std::nullopt;
};

// The memory of a device, in bytes.
struct MemoryInfo {
  int64_t total = 0;      // the size of the memory
  int64_t available = 0;  // the part that a program could still get
  int64_t in_use = 0;     // the part that this process uses: for tensors on a GPU, for everything on the CPU
  int64_t peak = 0;       // the most that this process has used so far
};

// Returns the machine's devices: the CPU and the GPUs that LibTorch sees. `type` filters ("CPU", "GPU"). This function
// and the next ones are about the machine, so they hold for the whole process. All are thread-safe.
std::vector<PhysicalDevice> list_physical_devices(std::string_view type = "");
// Returns the logical devices, of which every visible physical device has at least one.
std::vector<LogicalDevice> list_logical_devices(std::string_view type = "");

// Hides the physical devices of a type that are not listed. After logical devices were used (listed, found or placed
// on): FailedPrecondition. An empty type stands for all.
void set_visible_devices(const std::vector<PhysicalDevice>& devices, std::string_view type = "");
// Returns the physical devices that are not hidden.
std::vector<PhysicalDevice> get_visible_devices(std::string_view type = "");

// Splits a physical device into logical ones, such as the CPU into devices for several replicas. To be called before
// logical devices are used (FailedPrecondition otherwise).
void set_logical_devices(const PhysicalDevice& device, const std::vector<LogicalDeviceOptions>& parts);
void set_logical_devices(const PhysicalDevice& device, int parts);

// Returns the names of `count` logical CPUs, for CPU replicas. Splits the CPU further if it has fewer. Existing logical
// CPUs keep their names, so this works at any time.
std::vector<std::string> cpu_devices(int count);

// Returns the logical device of that name. NotFound lists the devices that there are.
LogicalDevice find_logical_device(const DeviceSpec& spec);
LogicalDevice find_logical_device(std::string_view name);

// Returns the figures of the memory on which a logical device computes, now. Parts of one physical device share them.
MemoryInfo memory_info(std::string_view name);

// The device on which the library's layers and factories create things in this thread while it lives. Scopes nest and
// merge part by part; an empty name clears. With soft placement (the default, as TensorFlow's) a GPU that is not there
// becomes the CPU, with one warning; without it, it is InvalidArgument.
class [[nodiscard]] DeviceScope {
 public:
  // Opens a scope for the device of that name.
  explicit DeviceScope(std::string_view name);
  // Opens a scope for a device.
  explicit DeviceScope(const LogicalDevice& device);
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope();
};

// Returns the device of the innermost scope, or the CPU without one.
LogicalDevice current_logical_device();
// Returns the same device as LibTorch names it.
torch::Device current_torch_device();
// Returns the options for torch factories: torch::randn({2, 3}, cohort::placement_options()). (LibTorch's own factories
// cannot be intercepted.)
torch::TensorOptions placement_options();

// Moves a tensor or a module to the current device, and logs it if placement is logged.
torch::Tensor place(const torch::Tensor& tensor, std::string_view name = "tensor");
void place(torch::nn::Module& module, std::string_view name = "module");

// Turns soft placement on or off for the whole process. On: the CPU takes the place of a device that is not there, and
// operations without a lowering to XLA run on the host. Without a call the first is so, and the second is an error.
void set_soft_device_placement(bool on);
// Returns whether soft placement is on.
bool get_soft_device_placement();
// Turns the log of placement on or off: one line on standard error for everything that place() and mirror() place.
void set_log_device_placement(bool on);
// Returns whether placement is logged.
bool get_log_device_placement();

}  // namespace cohort
