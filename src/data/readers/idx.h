// The IDX format: two zero bytes, a dtype, the number of dimensions, each size (32 bits, big endian), then the values
// (big endian).
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace cohort {

// Parses the bytes; `source` is their name in errors. Memory is allocated only for values that are there.
torch::Tensor parse_idx(std::span<const std::byte> bytes, const std::string& source);

// Returns the bytes, decompressed if they are gzip. Memory grows with the bytes that are really there. DataLoss names
// the offset where decompression failed.
std::string inflate_if_gzip(std::string bytes, const std::string& source);

// Returns the bytes of a file, decompressed if they are gzip. NotFound: it cannot be opened.
std::string read_maybe_gzip(const std::filesystem::path& file);

}  // namespace cohort
