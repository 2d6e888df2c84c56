#include "collective/packs.h"

#include <algorithm>

#include "base/fail.h"

namespace cohort {

std::vector<Pack> plan_packs(const std::vector<int64_t>& offsets, int64_t size, int64_t item_size,
                             const PackOptions& options) {
  if (options.num_packs < 0) {
    fail<InvalidArgument>("[collective] num_packs is ", options.num_packs, ", it must be 0 (no packing) or more");
  }
  if (options.bytes_per_pack < 0) {
    fail<InvalidArgument>("[collective] bytes_per_pack is ", options.bytes_per_pack, ", it must be 0 (off) or more");
  }
  std::vector<Pack> packs;
  if (size == 0) return packs;

  if (options.bytes_per_pack == 0 && options.num_packs > 0) {
    const int64_t count = std::min<int64_t>(options.num_packs, size);
    const int64_t step = size / count;
    for (int64_t i = count; i-- > 0;) packs.push_back({i * step, i + 1 == count ? size : (i + 1) * step});
    return packs;
  }
  const int64_t most = options.bytes_per_pack == 0 ? 1 : options.bytes_per_pack;
  int64_t least = options.first_bytes > 0 ? std::min(options.first_bytes, most) : most;
  int64_t end = size;
  for (std::size_t i = offsets.size(); i-- > 0;) {
    const int64_t begin = offsets[i];
    if ((end - begin) * item_size < least && i != 0) continue;
    if (end > begin) packs.push_back({begin, end});
    end = begin;
    least = std::min(2 * least, most);
  }
  return packs;
}

}  // namespace cohort
