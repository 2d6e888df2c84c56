// PoisonedAllocator: memory that shows who reads it before it is written.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/libtorch_compat.h"

namespace cohort::testing {

// Fills every new tensor of the CPU with bytes 0xFF: NaN in each floating type, -1 in each integer.
class PoisonedAllocator final : public compat::Allocator {
 public:
  // Makes it LibTorch's allocator for the rest of the process.
  static void install() {
    static PoisonedAllocator allocator;
    c10::SetAllocator(c10::DeviceType::CPU, &allocator, /*priority=*/255);
  }

  c10::DataPtr make(std::size_t bytes) const override {
    if (bytes == 0) return {nullptr, nullptr, &std::free, c10::Device(c10::DeviceType::CPU)};
    void* block = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (block == nullptr) throw std::bad_alloc();
    std::memset(block, 0xFF, bytes);
    return {block, block, &std::free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }

 private:
  static constexpr std::size_t kAlignment = 64;
};

}  // namespace cohort::testing
