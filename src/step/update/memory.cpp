#include "step/update/memory.h"

#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/parallel.h"
#include "ops/flush_denormals.h"

namespace cohort {

namespace {

std::vector<int64_t> contiguous_strides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

}  // namespace

void update_in_chunks(const UpdateRule& rule, const UpdateMemory& memory, std::span<const int64_t> shape,
                      void* gradient, Treatment treatment, const StepContext& context) {
  const int64_t size = c10::multiply_integers(shape.begin(), shape.end());
  if (rule.takes_whole()) {
    const FlushDenormals flush;
    UpdateMemory::SlotPointers slots;
    const std::vector<int64_t> strides = contiguous_strides(shape);
    Segment segment = memory.segment(0, size, gradient, treatment, slots);
    segment.shape = shape;
    segment.strides = strides;
    return rule.update(segment, context);
  }
  double trust_ratio = 1.0;
  if (rule.needs_norms()) {
    UpdateMemory::SlotPointers slots;
    const SquaredNorms norms = rule.prepare(memory.segment(0, size, gradient, treatment, slots), context);
    if (treatment.adapt) trust_ratio = rule.trust_ratio(norms);
  }
  parallel_for((size + kUpdateChunk - 1) / kUpdateChunk, kChunksAThread, [&](int64_t from, int64_t to) {
    const FlushDenormals flush;
    UpdateMemory::SlotPointers slots;
    for (int64_t begin = from * kUpdateChunk; begin < std::min(size, to * kUpdateChunk); begin += kUpdateChunk) {
      void* part = static_cast<std::byte*>(gradient) + begin * memory.item();
      Segment segment = memory.segment(begin, std::min(kUpdateChunk, size - begin), part, treatment, slots);
      segment.trust_ratio = trust_ratio;
      rule.update(segment, context);
    }
  });
}

}  // namespace cohort
