// The arithmetic of distributed input, after TensorFlow's (reference: tf.distribute, get_distributed_batch sizes).
// Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace cohort {

// Sizes of the sub-batches that one worker's replicas take in turn. A global batch of G over N = workers *
// replicas_per_worker sub-batches: the first G mod N get one more; worker w's list is that list rotated left by w *
// replicas_per_worker. Over one cycle of N sub-batches every worker takes G, and every step takes G over all workers.
inline std::vector<int64_t> sub_batch_sizes(int64_t global, int64_t workers, int64_t replicas_per_worker,
                                            int64_t worker) {
  const int64_t count = workers * replicas_per_worker;
  std::vector<int64_t> sizes;
  sizes.reserve(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = (i + worker * replicas_per_worker) % count;
    sizes.push_back(global / count + (at < global % count ? 1 : 0));
  }
  return sizes;
}

// Where a batch of unknown provenance is cut: ceil(size / pieces) each, the last ones perhaps empty. pieces + 1
// borders.
inline std::vector<int64_t> legacy_borders(int64_t size, int64_t pieces) {
  const int64_t step = (size + pieces - 1) / pieces;
  std::vector<int64_t> borders;
  for (int64_t i = 0; i <= pieces; ++i) borders.push_back(i * step < size ? i * step : size);
  return borders;
}

}  // namespace cohort
