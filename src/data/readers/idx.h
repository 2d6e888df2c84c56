// The IDX format: two zero bytes, a dtype, the number of dimensions, each size (32 bits, big endian), then the values
// (big endian).
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace cohort {

// `source` names the bytes in errors. Nothing is allocated for values that are not there.
torch::Tensor parse_idx(std::span<const std::byte> bytes, const std::string& source);

// The bytes, decompressed when they are gzip (memory grows with what is really there). DataLoss names the offset where
// decompression failed.
std::string inflate_if_gzip(std::string bytes, const std::string& source);

// The same of a file. NotFound: it cannot be opened.
std::string read_maybe_gzip(const std::filesystem::path& file);

}  // namespace cohort
