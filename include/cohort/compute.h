// How LibTorch computes on this process's devices, and what is known of its GPUs.
//
//   const cohort::ComputeScope compute({.tensor_float_32 = true});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/device.h"

namespace cohort {

// How LibTorch computes. The first three are for GPUs.
struct ComputeOptions {
  // Whether the factors of products and convolutions of float32 are rounded to TensorFloat-32, which has 10 bits of
  // fraction. Without a value LibTorch decides: those of convolutions are. InvalidArgument: true, and a GPU is older
  // than compute capability 8.0, or NVIDIA_TF32_OVERRIDE is 0
  std::optional<bool> tensor_float_32 = std::nullopt;
  // Whether cuDNN tries its algorithms on each new shape of a convolution and keeps the fastest. Without a value it
  // does until a model has had inputs of more than 8 shapes
  std::optional<bool> cudnn_benchmark = std::nullopt;
  bool cudnn_enabled = true;  // whether cuDNN is used
  // Whether every run has the same bits. An operation that has several forms takes the one that repeats, which may be
  // slower; Unimplemented comes from one that has no such form. CPUs add up at repeated indices by one thread, and
  // nothing else changes there
  bool deterministic = false;
};

// The whole process computes so while it lives; then as before. Scopes nest. To be opened before the first operation on
// a GPU. InvalidArgument: an option for GPUs is set and there is none, or two options contradict each other.
class [[nodiscard]] ComputeScope {
 public:
  explicit ComputeScope(const ComputeOptions& options);
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;
  ~ComputeScope();

 private:
  struct Switches;
  std::unique_ptr<const Switches> before_;
  bool decides_search_ = false;
};

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
