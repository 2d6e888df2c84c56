// UpdateMemory: a run of parameters and their slots in the CPU's memory, as update rules take it: pointers to the same
// elements of all of them. Replicas and parameter servers update through it in the same chunks.
#pragma once

#include <c10/util/SmallVector.h>
#include <torch/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "optimizer/update_rule.h"

namespace cohort {

// Elements that one call of a rule gets: with their slots and their gradient they stay in the first-level cache.
inline constexpr int64_t kUpdateChunk = 2048;
// Chunks that a thread must have before another one is worth waking.
inline constexpr int64_t kChunksAThread = 16;

class UpdateMemory {
 public:
  // Room for the pointers of a segment, which lives as long as that.
  using SlotPointers = std::array<void*, 8>;

  UpdateMemory() = default;
  // Makes the memory of contiguous tensors of one dtype that live longer than this.
  UpdateMemory(const torch::Tensor& values, const std::vector<torch::Tensor>& slots)
      : dtype_(values.scalar_type()),
        item_(static_cast<int64_t>(values.element_size())),
        values_(static_cast<std::byte*>(values.data_ptr())) {
    for (const torch::Tensor& slot : slots) slots_.push_back(static_cast<std::byte*>(slot.data_ptr()));
  }

  torch::ScalarType dtype() const { return dtype_; }
  // Returns the bytes of an element.
  int64_t item() const { return item_; }
  std::byte* values(int64_t element) const { return values_ + element * item_; }

  Segment segment(int64_t begin, int64_t size, void* gradient, Treatment treatment, SlotPointers& slots) const {
    for (std::size_t s = 0; s < slots_.size(); ++s) slots[s] = slots_[s] + begin * item_;
    return {.dtype = dtype_,
            .parameter = values(begin),
            .gradient = gradient,
            .slots = slots.data(),
            .size = size,
            .treatment = treatment};
  }

 private:
  torch::ScalarType dtype_ = torch::kFloat;
  int64_t item_ = 0;
  std::byte* values_ = nullptr;
  c10::SmallVector<std::byte*, 4> slots_;
};

// Updates a contiguous parameter of this shape by a gradient that lies in a run of its own, which the rule may
// overwrite; on all threads that the calling thread's operations may use.
void update_in_chunks(const UpdateRule& rule, const UpdateMemory& memory, std::span<const int64_t> shape,
                      void* gradient, Treatment treatment, const StepContext& context);

}  // namespace cohort
