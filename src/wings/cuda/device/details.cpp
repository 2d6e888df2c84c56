#include "wings/cuda/device/details.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "device/numa.h"

namespace cohort {

namespace {

// "GPU-" or "MIG-", and the number with dashes behind its bytes 4, 6, 8 and 10.
std::string uuid_of(const cudaDeviceProp& properties) {
  const bool instance = std::string_view(properties.name).find(" MIG ") != std::string_view::npos;
  std::string text = instance ? "MIG" : "GPU";
  for (std::size_t i = 0; i < sizeof(properties.uuid.bytes); ++i) {
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", dash ? "-" : "", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return text;
}

std::string pci_address_of(int index) {
  std::array<char, 32> text{};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index));
  return text.data();
}

}  // namespace

DeviceDetails cuda_details(int index) {
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
  DeviceDetails details{.device_name = properties.name,
                        .compute_capability = std::pair(properties.major, properties.minor),
                        .uuid = uuid_of(properties),
                        .pci_address = pci_address_of(index)};
  details.numa_node = numa_node_of(kSysfs, details.pci_address);
  for (int other = 0; other < static_cast<int>(c10::cuda::device_count()); ++other) {
    int reaches = 0;
    if (other != index) C10_CUDA_CHECK(cudaDeviceCanAccessPeer(&reaches, index, other));
    if (reaches != 0) details.peers.push_back(other);
  }
  return details;
}

}  // namespace cohort
