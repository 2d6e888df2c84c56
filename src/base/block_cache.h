// BlockCache: keeps the memory of large CPU tensors for the next ones of their size. A training step frees and asks for
// the same blocks over and over; the C library gives such blocks back to the kernel and faults them in again, page by
// page, which costs a convolutional network a fifth of its step, and more the more replicas share the process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort {

// Makes the cache LibTorch's allocator for CPU tensors, for the rest of the process; from the second call on, nothing.
// Does nothing under AddressSanitizer, which must see every block freed, or where another allocator was set with
// priority.
void install_block_cache();

// Idle bytes that are kept at most; what is over goes back to the C library. By default a quarter of the memory.
// Thread-safe. Takes effect at once; 0: nothing is kept.
void set_block_cache_limit(int64_t bytes);

struct BlockCacheStats {
  int64_t idle_bytes = 0;  // kept for the next tensor
  int64_t hits = 0;        // blocks that were reused
  int64_t misses = 0;      // large blocks that the C library gave
};
BlockCacheStats block_cache_stats();

namespace block_cache {

// The allocator itself, for tests: 64-byte aligned; blocks under kSmallest go to the C library directly.
inline constexpr std::size_t kSmallest = 128 << 10;
void* allocate(std::size_t bytes);
void release(void* data);

}  // namespace block_cache

}  // namespace cohort
