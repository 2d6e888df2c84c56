// What is known of this process's GPUs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/device.h"

namespace cohort {

// A GPU and its place in the machine.
struct DeviceDetails {
  std::string device_name = {};                                // such as "NVIDIA H100 80GB HBM3"; empty: not known
  std::optional<std::pair<int, int>> compute_capability = {};  // major and minor, of a GPU
  std::string uuid = {};                                       // "GPU-..."; "MIG-..." of an instance of a GPU
  std::string pci_address = {};                                // "0000:3b:00.0"
  std::optional<int> numa_node = {};                           // the node of the machine that the GPU is next to
  std::vector<int> peers = {};                                 // the GPUs whose memory it reaches directly
};

// Returns what is known of a physical device: of GPUs all of it, of others nothing. NotFound: it is not there.
DeviceDetails get_device_details(const PhysicalDevice& device);

}  // namespace cohort
