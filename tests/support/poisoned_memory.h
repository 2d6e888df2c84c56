// PoisonedMemory: memory of new tensors that is full of NaN, so that a result that an operation leaves unwritten shows.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/libtorch_compat.h"

namespace cohort::testing {

// While it lives, new tensors on the CPU have such memory.
class PoisonedMemory {
 public:
  PoisonedMemory() : before_(c10::GetAllocator(c10::DeviceType::CPU)) { install(&allocator_); }
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;
  ~PoisonedMemory() { install(before_); }

 private:
  class Allocator final : public compat::Allocator {
   public:
    c10::DataPtr make(std::size_t bytes) const override {
      if (bytes == 0) return {nullptr, nullptr, &std::free, c10::Device(c10::DeviceType::CPU)};
      void* block = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
      if (block == nullptr) throw std::bad_alloc();
      std::memset(block, 0xFF, bytes);  // all bits set are a NaN
      return {block, block, &std::free, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  };

  static constexpr std::size_t kAlignment = 64;
  static constexpr uint8_t kPriority = 255;

  static void install(c10::Allocator* allocator) { c10::SetAllocator(c10::DeviceType::CPU, allocator, kPriority); }

  inline static Allocator allocator_;
  c10::Allocator* before_;
};

}  // namespace cohort::testing
