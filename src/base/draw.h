// Random numbers that tell processes and files apart.
#pragma once

#include <cstdint>
#include <random>

namespace cohort {

// Returns a number from the system's source of randomness, on which seeds have no effect. No other process gets the
// same.
inline uint64_t draw_number() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace cohort
