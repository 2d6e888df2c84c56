// CountingAllocator: how many bytes the tensors on the CPU have, as LibTorch's allocator is asked for them.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "base/libtorch_compat.h"

namespace cohort::testing {

class CountingAllocator final : public compat::Allocator {
 public:
  // Makes it LibTorch's allocator for the rest of the process. Tensors that are there already are not counted.
  static void install() {
    static CountingAllocator allocator;
    c10::SetAllocator(c10::DeviceType::CPU, &allocator, /*priority=*/255);
  }

  // Returns the bytes that tensors have now.
  static int64_t live() { return bytes_.load(); }
  // Returns the most bytes that they had at once since begin_peak().
  static int64_t peak() { return peak_.load(); }
  static void begin_peak() { peak_ = bytes_.load(); }

  c10::DataPtr make(std::size_t bytes) const override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    const std::size_t whole = (bytes + 2 * kHeader - 1) / kHeader * kHeader;
    void* block = std::aligned_alloc(kHeader, whole);
    if (block == nullptr) throw std::bad_alloc();
    *static_cast<int64_t*>(block) = static_cast<int64_t>(bytes);
    const int64_t now = bytes_ += static_cast<int64_t>(bytes);
    int64_t most = peak_;
    while (now > most && !peak_.compare_exchange_weak(most, now)) {
    }
    void* data = static_cast<char*>(block) + kHeader;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }

 private:
  static constexpr std::size_t kHeader = 64;

  static void release(void* data) {
    if (data == nullptr) return;
    void* block = static_cast<char*>(data) - kHeader;
    bytes_ -= *static_cast<int64_t*>(block);
    std::free(block);
  }

  inline static std::atomic<int64_t> bytes_ = 0;
  inline static std::atomic<int64_t> peak_ = 0;
};

}  // namespace cohort::testing
