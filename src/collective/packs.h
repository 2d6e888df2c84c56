// Packs: the messages that a long run of gradients is cut into.
#pragma once

#include <cstdint>
#include <vector>

namespace cohort {

struct Pack {
  int64_t begin = 0;  // elements of the flat buffer
  int64_t end = 0;
};

struct PackOptions {
  int num_packs = 1;           // equal parts, the last takes the remainder; 0: one a tensor
  int64_t bytes_per_pack = 0;  // above 0, instead: consecutive tensors until a pack has at least so many bytes
  int64_t first_bytes = 0;     // above 0: of the first pack; then twice as many each, up to bytes_per_pack
};

// `offsets`: where each tensor begins in the flat buffer of `size` elements of `item_size` bytes; increasing from 0.
// Packs cover the buffer without gaps, those of the last tensors first: backward computes their gradients first.
// Negative options: InvalidArgument. The equal parts are TensorFlow's num_packs, the tensor groups its bytes_per_pack.
std::vector<Pack> plan_packs(const std::vector<int64_t>& offsets, int64_t size, int64_t item_size,
                             const PackOptions& options);

}  // namespace cohort
