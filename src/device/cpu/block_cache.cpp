#include "device/cpu/block_cache.h"

#include <c10/core/impl/alloc_cpu.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "base/libtorch_compat.h"

#if defined(__SANITIZE_ADDRESS__)
#define COHORT_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#define COHORT_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define COHORT_ADDRESS_SANITIZER 0
#endif

namespace cohort {

namespace {

constexpr std::size_t kHeader = 64;  // keeps the data aligned

// The header in front of every block's data.
struct Header {
  std::size_t size_class = 0;  // the index of its bin; kSmall or kUncached
  Header* next = nullptr;      // the next idle block of the bin
  void* memory = nullptr;      // what malloc() gave for a small block
};
static_assert(sizeof(Header) <= kHeader);

// There are four classes between a power of two and the next one, so at most a quarter of a block is unused.
constexpr std::size_t kSteps = 4;
constexpr std::size_t kSmall = 4096;     // of malloc()
constexpr std::size_t kUncached = 4097;  // of the system
constexpr std::size_t kClasses = kSteps * 48;
constexpr std::size_t kLargest = std::size_t{1} << 48;  // the last class; more than a process can address

std::size_t class_of(std::size_t bytes) {
  const auto power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^power < bytes <= 2^(power + 1)
  const std::size_t step = (std::size_t{1} << power) / kSteps;
  return power * kSteps + (bytes - (std::size_t{1} << power) + step - 1) / step - 1;
}

std::size_t bytes_of(std::size_t size_class) {
  const std::size_t power = size_class / kSteps;
  return (std::size_t{1} << power) + (size_class % kSteps + 1) * ((std::size_t{1} << power) / kSteps);
}

int64_t default_limit() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 4;
}

// A part of the cache. A thread uses its own shelf, whose blocks are in its core's cache, and looks into the other
// shelves only when its own is empty.
struct Shelf {
  std::mutex mutex;
  std::array<Header*, kClasses> bins{};

  Header* take(std::size_t size_class) {
    const std::lock_guard lock(mutex);
    Header* block = bins[size_class];
    if (block != nullptr) bins[size_class] = block->next;
    return block;
  }
  void put(Header* block) {
    const std::lock_guard lock(mutex);
    block->next = bins[block->size_class];
    bins[block->size_class] = block;
  }
};

constexpr std::size_t kShelves = 16;

std::size_t own_shelf() {
  static std::atomic<std::size_t> next = 0;
  static thread_local const std::size_t own = next.fetch_add(1, std::memory_order_relaxed) % kShelves;
  return own;
}

// The cache of the process. It is trivially destructible, because tensors are freed after main() as well.
class Cache {
 public:
  void* allocate(std::size_t bytes) {
    if (bytes < block_cache::kSmallest) return data_of(small(bytes));
    // A size beyond the last class has no bin: the system refuses it, as it does without a cache.
    if (bytes > kLargest) return data_of(from_system(bytes, kUncached));
    const std::size_t size_class = class_of(bytes);
    Header* block = take(size_class);
    if (block != nullptr) return data_of(block);
    try {
      block = from_system(bytes_of(size_class), size_class);
    } catch (const c10::Error&) {
      trim(0);  // the idle blocks may be the memory that is missing
      block = from_system(bytes_of(size_class), size_class);
    }
    return data_of(block);
  }

  void release(void* data) {
    if (data == nullptr) return;
    auto* block = reinterpret_cast<Header*>(static_cast<char*>(data) - kHeader);
    if (block->size_class == kSmall) return std::free(block->memory);  // NOLINT(cppcoreguidelines-owning-memory)
    if (block->size_class == kUncached || !keep(block)) c10::free_cpu(block);
  }

  void set_limit(int64_t bytes) {
    limit_ = bytes;
    trim(bytes);
  }

  BlockCacheStats stats() const { return {.idle_bytes = idle_bytes_, .hits = hits_, .misses = misses_}; }

 private:
  static void* data_of(Header* block) { return reinterpret_cast<char*>(block) + kHeader; }

  // The C library's own way to aligned memory passes its small caches by: an alignment of ours takes a quarter of the
  // time.
  static Header* small(std::size_t bytes) {
    std::size_t room = bytes + 2 * kHeader;
    void* const memory = std::malloc(room);  // NOLINT(cppcoreguidelines-owning-memory): the header keeps it
    if (memory == nullptr) return from_system(bytes, kUncached);  // says what is missing
    void* place = memory;
    std::align(kHeader, bytes + kHeader, place, room);
    return std::construct_at(static_cast<Header*>(place), Header{.size_class = kSmall, .memory = memory});
  }

  static Header* from_system(std::size_t bytes, std::size_t size_class) {
    const std::size_t whole = std::max(bytes, bytes + kHeader);  // a sum that overflows would be a small block
    return std::construct_at(static_cast<Header*>(c10::alloc_cpu(whole)), Header{.size_class = size_class});
  }

  Header* take(std::size_t size_class) {
    const std::size_t own = own_shelf();
    for (std::size_t i = 0; i < kShelves; ++i) {
      Header* block = shelves_[(own + i) % kShelves].take(size_class);
      if (block == nullptr) continue;
      idle_bytes_ -= static_cast<int64_t>(bytes_of(size_class));
      ++hits_;
      return block;
    }
    ++misses_;
    return nullptr;
  }

  bool keep(Header* block) {
    if (limit_ < 0) limit_ = default_limit();
    const auto bytes = static_cast<int64_t>(bytes_of(block->size_class));
    if (idle_bytes_.fetch_add(bytes) + bytes > limit_) {
      idle_bytes_ -= bytes;
      return false;
    }
    shelves_[own_shelf()].put(block);
    return true;
  }

  // Returns blocks to the C library, the largest first, until no more than `bytes` are idle.
  void trim(int64_t bytes) {
    for (std::size_t size_class = kClasses; size_class-- > 0;) {
      for (Shelf& shelf : shelves_) {
        while (idle_bytes_ > bytes) {
          Header* block = shelf.take(size_class);
          if (block == nullptr) break;
          idle_bytes_ -= static_cast<int64_t>(bytes_of(size_class));
          c10::free_cpu(block);
        }
      }
    }
  }

  std::array<Shelf, kShelves> shelves_;
  std::atomic<int64_t> idle_bytes_ = 0;
  std::atomic<int64_t> hits_ = 0;
  std::atomic<int64_t> misses_ = 0;
  std::atomic<int64_t> limit_ = -1;  // negative until it is first needed
};

constinit Cache cache;

class CachingAllocator final : public compat::Allocator {
 public:
  c10::DataPtr make(std::size_t bytes) const override {
    void* data = bytes == 0 ? nullptr : cache.allocate(bytes);
    return {data, data, &block_cache::release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &block_cache::release; }
};

}  // namespace

void* block_cache::allocate(std::size_t bytes) {
  return cache.allocate(bytes);
}

void block_cache::release(void* data) {
  cache.release(data);
}

void install_block_cache() {
#if !COHORT_ADDRESS_SANITIZER
  [[maybe_unused]] static const bool done = [] {
    static CachingAllocator allocator;
    c10::SetAllocator(c10::DeviceType::CPU, &allocator);
    return true;
  }();
#endif
}

void set_block_cache_limit(int64_t bytes) {
  cache.set_limit(bytes);
}

BlockCacheStats block_cache_stats() {
  return cache.stats();
}

}  // namespace cohort
