// The host's own processors and memory: one device, however many logical ones it is split into.
#pragma once

#include <memory>

#include "device/backend.h"

namespace cohort {

std::unique_ptr<DeviceBackend> make_cpu_backend();

}  // namespace cohort
