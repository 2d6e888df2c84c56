// CRC32C (Castagnoli), the checksum of TFRecord and of our manifests, by libisal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cohort {

// Returns the checksum of `bytes`, continued from the checksum of the bytes before them.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace cohort
