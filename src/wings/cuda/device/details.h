// What CUDA says of a GPU.
#pragma once

#include "device/backend.h"

namespace cohort {

// Returns what is known of a GPU, with its node of the machine and the other GPUs that it reaches.
DeviceDetails cuda_details(int index);

}  // namespace cohort
