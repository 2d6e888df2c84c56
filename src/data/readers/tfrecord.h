// The layout of a TFRecord, for its reader and its writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/crc32c.h"

namespace cohort::tfrecord {

inline constexpr std::size_t kHead = 12;  // the length, 64 bits little endian, and its checksum
inline constexpr std::size_t kTail = 4;   // the checksum of the bytes

// Returns the stored form of a checksum. A plain CRC of data that contains CRCs would be weak.
inline uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

}  // namespace cohort::tfrecord
