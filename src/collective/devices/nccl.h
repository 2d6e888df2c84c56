// NCCL between the GPUs of this process, and between processes. A wing has it.
#pragma once

#include <memory>
#include <vector>

#include "cohort/communicator.h"
#include "collective/devices/linked_sums.h"
#include "collective/transport.h"

namespace cohort {

// The makers of what has NCCL. An extension.
struct NcclMaker {
  std::unique_ptr<DeviceLink> (*make_link)(const std::vector<torch::Device>& devices) = nullptr;
  std::unique_ptr<Communicator> (*make_communicator)(const Meeting& meeting) = nullptr;
};

// Returns whether this build has NCCL.
bool has_nccl();

// Makes the communicators of different GPUs. Unavailable: NCCL cannot; Unimplemented: the build has none.
std::unique_ptr<DeviceLink> make_nccl_link(const std::vector<torch::Device>& devices);

// Makes a communicator for tensors of GPUs, for ProcessCommunicator to use. Nothing is sent before the first
// collective. Unimplemented where the build has no NCCL between processes.
std::unique_ptr<Communicator> make_nccl(const Meeting& meeting);

}  // namespace cohort
