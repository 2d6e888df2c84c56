#include "step/update/memory.h"

#include <algorithm>

#include "base/flush_denormals.h"
#include "base/parallel.h"

namespace cohort {

void update_in_chunks(const UpdateRule& rule, const UpdateMemory& memory, int64_t size, void* gradient, bool decay,
                      const StepContext& context) {
  double trust_ratio = 1.0;
  if (rule.needs_norms()) {
    UpdateMemory::SlotPointers slots;
    const SquaredNorms norms = rule.prepare(memory.segment(0, size, gradient, decay, slots), context);
    if (decay) trust_ratio = rule.trust_ratio(norms);
  }
  parallel_for((size + kUpdateChunk - 1) / kUpdateChunk, kChunksAThread, [&](int64_t from, int64_t to) {
    const FlushDenormals flush;
    UpdateMemory::SlotPointers slots;
    for (int64_t begin = from * kUpdateChunk; begin < std::min(size, to * kUpdateChunk); begin += kUpdateChunk) {
      void* part = static_cast<std::byte*>(gradient) + begin * memory.item();
      Segment segment = memory.segment(begin, std::min(kUpdateChunk, size - begin), part, decay, slots);
      segment.trust_ratio = trust_ratio;
      rule.update(segment, context);
    }
  });
}

}  // namespace cohort
