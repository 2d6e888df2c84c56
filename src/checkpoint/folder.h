// The folder of one checkpoint. It is written so that it is there whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "checkpoint/reader.h"
#include "checkpoint/shards.h"
#include "cohort/checkpoint.h"

namespace cohort {

// Writes a checkpoint to `temporary` and renames it to `folder`; both replace what had the name before. A write that
// fails leaves nothing.
void write_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& temporary, int64_t step,
                      const CheckpointData& data);

// Makes the folder in which a checkpoint is written, in the place of what an earlier process has left there.
void make_draft(const std::filesystem::path& temporary);
// Adds `data` to the shards that workers write to a draft, waits for these, and renames it. As write_checkpoint().
void publish_shards(const std::filesystem::path& folder, const std::filesystem::path& temporary, int64_t step,
                    const CheckpointData& data, const ShardsToCome& shards);

// Reads the wanted groups of tensors as wholes. Their checksums are not checked.
void read_groups(const CheckpointReader& reader, const std::function<bool(const std::string& group)>& wanted,
                 CheckpointData& data);

}  // namespace cohort
