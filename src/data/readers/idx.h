// The IDX format: two zero bytes, a dtype, the number of dimensions, each size (32 bits, big endian), then the values
// (big endian).
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <span>
#include <string>

namespace cohort {

// Parses the bytes; `source` is their name in errors. Memory is allocated only for values that are there.
torch::Tensor parse_idx(std::span<const std::byte> bytes, const std::string& source);

}  // namespace cohort
