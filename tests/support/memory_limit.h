// A limit of the memory that a test's process may have.
#pragma once

#include <malloc.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>

namespace cohort::testing {

// Returns the bytes of this process that RLIMIT_DATA counts.
inline int64_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmData:" && status >> kilobytes) return kilobytes * 1024;
  }
  throw std::runtime_error("/proc/self/status has no VmData");
}

// Lets this process have so many bytes more than it has, and gives back to the system what is freed from now on.
inline void limit_memory(int64_t more) {
  mallopt(M_MMAP_THRESHOLD, 1 << 17);
  const rlimit allowed{.rlim_cur = static_cast<rlim_t>(data_bytes() + more), .rlim_max = RLIM_INFINITY};
  if (setrlimit(RLIMIT_DATA, &allowed) != 0) throw std::runtime_error("RLIMIT_DATA cannot be set");
}

}  // namespace cohort::testing
