// One checkpoint's folder: writing it such that it is there whole or not at all, and reading it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "cohort/checkpoint.h"

namespace cohort {

// Writes to `temporary`, then renames it; what had either name before is gone then. A write that fails leaves nothing.
// Tensors must be on the CPU and contiguous.
void write_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& temporary, int64_t step,
                      const CheckpointData& data);

}  // namespace cohort
