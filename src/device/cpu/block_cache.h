// BlockCache: keeps the memory of large CPU tensors for the next ones of their size. A training step frees and asks for
// the same blocks over and over; the C library gives such blocks back to the kernel and faults them in again, page by
// page, which costs a convolutional network a fifth of its step, and more the more replicas share the process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort {

// Makes the cache LibTorch's allocator for CPU tensors, for the rest of the process. A second call has no effect.
// Does nothing under AddressSanitizer, which must see every block freed, or where another allocator was set with
// priority.
void install_block_cache();

// Sets how many idle bytes are kept at most; the rest goes back to the C library. The default is a quarter of the
// memory, and 0 keeps nothing. Takes effect at once. Thread-safe.
void set_block_cache_limit(int64_t bytes);

struct BlockCacheStats {
  int64_t idle_bytes = 0;  // bytes of idle blocks
  int64_t hits = 0;        // number of blocks that were reused
  int64_t misses = 0;      // number of large blocks that the C library allocated
};
BlockCacheStats block_cache_stats();

namespace block_cache {

// The allocator itself, for tests. Blocks are aligned to 64 bytes; those under kSmallest bytes come from the C library.
inline constexpr std::size_t kSmallest = 128 << 10;
void* allocate(std::size_t bytes);
void release(void* data);

}  // namespace block_cache

}  // namespace cohort
