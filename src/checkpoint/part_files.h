// The files that a checkpoint is made of. Each is written once, flushed, and noted with its size and checksum.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/manifest.h"
#include "cohort/weights.h"

namespace cohort {

// Writes tensors of any device and layout, each of which is copied to the CPU by itself.
ManifestFile write_tensor_file(const std::filesystem::path& file, const NamedTensors& tensors);
ManifestFile write_bytes_file(const std::filesystem::path& file, const std::string& bytes);

// Throws InvalidArgument if nothing in a checkpoint can be called so.
void require_part_name(const std::string& name);

}  // namespace cohort
