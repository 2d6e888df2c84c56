// The folder of one checkpoint. It is written so that it is there whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>

#include "cohort/checkpoint.h"

namespace cohort {

// Writes a checkpoint to `temporary` and renames it to `folder`; both replace what had the name before. A write that
// fails leaves nothing. The tensors must be contiguous and on the CPU.
void write_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& temporary, int64_t step,
                      const CheckpointData& data);

}  // namespace cohort
