// A number that no other process draws: what tells one from the one before it.
#pragma once

#include <cstdint>
#include <random>

namespace cohort {

// From the system's source of randomness; seeds have no effect on it.
inline uint64_t draw_number() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace cohort
