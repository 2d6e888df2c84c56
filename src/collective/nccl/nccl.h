// NCCL between processes, as LibTorch has it. Builds without it have no_nccl.cpp instead.
#pragma once

#include <memory>

#include "cohort/communicator.h"
#include "collective/transport.h"

namespace cohort {

bool has_nccl();

// Makes a communicator for tensors of GPUs, for ProcessCommunicator to use. Nothing is sent before the first
// collective. Unimplemented where the build has no NCCL between processes.
std::unique_ptr<Communicator> make_nccl(const Meeting& meeting);

}  // namespace cohort
