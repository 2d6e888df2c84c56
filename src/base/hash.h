// A hash that is the same in every process and on every machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace cohort {

// Returns the FNV-1a hash of the text (Fowler, Noll, Vo, 1991).
inline uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace cohort
