#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace cohort {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;  // the library counts in int
  uint32_t state = ~before;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kLargest));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(part.data()));  // it only reads
    state = crc32_iscsi(data, static_cast<int>(part.size()), state);
    bytes = bytes.subspan(part.size());
  }
  return ~state;
}

}  // namespace cohort
